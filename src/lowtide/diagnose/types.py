"""A Finding: what costs memory, how much, whose line it is, and the change that helps. Types only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from lowtide.program import Source
from lowtide.record import Recording

PROBLEM, ADVICE = "problem", "advice"
"""A problem is bytes that need not be there, or growth without end. Advice is a cost that a change would lower."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Everything here was measured or computed for this run. None means "not known", never zero."""

    id: str
    """Of the rule that found it; stable."""
    severity: str
    title: str
    bytes: int
    """What it costs: held at the end of the run, or at its peak."""
    source: Source | None
    code: str
    """The statement at `source`, on one line."""
    fix: str
    bytes_per_step: int | None = None
    """For what grows: by how much from one of the run's steps to the next. None where the run has no steps."""
    holder: str = ""
    """The chain that keeps it, from a name in the user's code."""
    saving_bytes: int | None = None


class Rule(NamedTuple):
    """A pure function from a Recording to Findings.

    `family` is what `--fail-on` calls it: "leak", "retrace", "tape", "graph", "data", "step", "device", "oom".
    A rule that is `general` says less than one made for the case: it yields to any other that names the same bytes.
    """

    id: str
    family: str
    says: str
    """One line for the table of rules."""
    check: Callable[[Recording], Iterable[Finding]]
    general: bool = False


def finding_json(finding: Finding) -> dict[str, Any]:
    """The keys of `--json`: a contract, added to and never renamed."""
    where = finding.source
    return {
        "id": finding.id,
        "severity": finding.severity,
        "title": finding.title,
        "bytes": finding.bytes,
        "bytes_per_step": finding.bytes_per_step,
        "file": where.file if where else None,
        "line": where.line if where else None,
        "code": finding.code or None,
        "holder": finding.holder or None,
        "fix": finding.fix,
        "saving_bytes": finding.saving_bytes,
    }
