"""What is known of each op type, as tables."""

from lowtide.ops.data import chosen_by_data, is_branching, is_lowered, sure_arm
from lowtide.ops.scratch import HALVES, OWN_KERNEL, SCRATCH_FIRST, SCRATCH_OF_OWN_KERNELS
from lowtide.ops.table import (
    ANY_INPUT,
    BRANCHES,
    LOOPS,
    LOWERING_ATTRIBUTE,
    TRIPS_AT_ONCE,
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
    "BRANCHES",
    "HALVES",
    "LOOPS",
    "LOWERING_ATTRIBUTE",
    "OWN_KERNEL",
    "SCRATCH_FIRST",
    "SCRATCH_OF_OWN_KERNELS",
    "TRIPS_AT_ONCE",
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
    "sure_arm",
]
