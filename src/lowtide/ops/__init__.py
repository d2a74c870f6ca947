"""What is known of each op type, as tables."""

from lowtide.ops.data import chosen_by_data, is_branching, is_lowered
from lowtide.ops.scratch import SCRATCH_FIRST, SCRATCH_IN_BODIES
from lowtide.ops.table import (
    ANY_INPUT,
    LOWERING_ATTRIBUTE,
    UNKNOWN,
    WANTED_ATTRIBUTES,
    WANTS_CONSTANTS,
    Act,
    Rule,
    rule_at,
    rule_of,
)

__all__ = [
    "ANY_INPUT",
    "LOWERING_ATTRIBUTE",
    "SCRATCH_FIRST",
    "SCRATCH_IN_BODIES",
    "UNKNOWN",
    "WANTED_ATTRIBUTES",
    "WANTS_CONSTANTS",
    "Act",
    "Rule",
    "chosen_by_data",
    "is_branching",
    "is_lowered",
    "rule_at",
    "rule_of",
]
