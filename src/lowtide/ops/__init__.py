"""What is known of each op type, as tables."""

from lowtide.ops.data import chosen_by_data, is_branching
from lowtide.ops.scratch import SCRATCH_FIRST, SCRATCH_IN_BODIES
from lowtide.ops.table import ANY_INPUT, UNKNOWN, WANTED_ATTRIBUTES, WANTS_CONSTANTS, Act, Rule, rule_at, rule_of

__all__ = [
    "ANY_INPUT",
    "SCRATCH_FIRST",
    "SCRATCH_IN_BODIES",
    "UNKNOWN",
    "WANTED_ATTRIBUTES",
    "WANTS_CONSTANTS",
    "Act",
    "Rule",
    "chosen_by_data",
    "is_branching",
    "rule_at",
    "rule_of",
]
