"""What is known of each op type, as tables."""

from lowtide.ops.table import ANY_INPUT, UNKNOWN, WANTED_ATTRIBUTES, WANTS_CONSTANTS, Act, Rule, rule_at, rule_of

__all__ = ["ANY_INPUT", "UNKNOWN", "WANTED_ATTRIBUTES", "WANTS_CONSTANTS", "Act", "Rule", "rule_at", "rule_of"]
