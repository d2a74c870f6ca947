"""From a Recording to Findings: what wastes memory, how much, whose line it is, and the change that helps."""

from lowtide.diagnose.limits import Limits, parse_limits
from lowtide.diagnose.rules import RULES, diagnose
from lowtide.diagnose.types import ADVICE, PROBLEM, Finding, Rule, finding_json

__all__ = ["ADVICE", "PROBLEM", "RULES", "Finding", "Limits", "Rule", "diagnose", "finding_json", "parse_limits"]
