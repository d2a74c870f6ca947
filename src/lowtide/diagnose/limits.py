"""`--fail-on leak,retrace,peak>2GiB`: what breaks a run that would otherwise pass."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lowtide.diagnose.rules import BY_ID, RULES
from lowtide.diagnose.types import Finding
from lowtide.errors import BadUse
from lowtide.record import Recording
from lowtide.record.views import device_peak, host_peak
from lowtide.units import format_size, parse_size

FAMILIES = tuple(dict.fromkeys(rule.family for rule in RULES))
WHATEVER_ITS_BYTES = frozenset({"retrace"})
"""Families of which even advice is not wanted by those who ask: a step that is traced anew is slow, however small."""
_ABOVE = re.compile(r"(peak|device|host)\s*>\s*(.+)")
_EXPECTED = f"a rule's id, {', '.join(FAMILIES)}, problem, or a limit such as peak>2GiB, device>2GiB, host>8GiB"


@dataclass(frozen=True, slots=True)
class Limits:
    """Families, ids and severities that must not be found, and sizes that must not be passed."""

    names: tuple[str, ...] = ()
    sizes: tuple[tuple[str, int], ...] = ()

    def broken(self, recording: Recording, findings: Iterable[Finding]) -> list[str]:
        """What was broken, a line each; empty when all held."""
        found = [_named(finding) for finding in findings if _is_named(finding, self.names)]
        for name, limit in self.sizes:
            size, of = max(_sizes(recording, name), default=(0, ""))
            if size > limit:
                found.append(f"{name} was {format_size(size)} ({of}), the limit is {format_size(limit)}")
        return found


def parse_limits(text: str) -> Limits:
    """The argument of `--fail-on`."""
    names: list[str] = []
    sizes: list[tuple[str, int]] = []
    for part in (part.strip() for part in text.split(",")):
        if above := _ABOVE.fullmatch(part):
            sizes.append((above[1], parse_size(above[2])))
        elif part in (*FAMILIES, *BY_ID, "problem"):
            names.append(part)
        else:
            raise BadUse(f"--fail-on {part!r}: expected {_EXPECTED}")
    return Limits(tuple(names), tuple(sizes))


def _is_named(finding: Finding, names: Sequence[str]) -> bool:
    """A family means its problems, and where each finding of it is one for CI, advice too; an id may be of advice."""
    family = BY_ID[finding.id].family
    if finding.id in names or (family in names and family in WHATEVER_ITS_BYTES):
        return True
    return finding.severity == "problem" and ("problem" in names or family in names)


def _named(finding: Finding) -> str:
    where = f" at line {finding.source.line}" if finding.source else ""
    return f"{finding.id}{where}: {finding.title}"


def _sizes(recording: Recording, name: str) -> Iterator[tuple[int, str]]:
    """What a limit is held against, and of what it is: `peak` means the larger of the two."""
    device, host = device_peak(recording), host_peak(recording)
    if device is not None and name in ("device", "peak"):
        yield device.bytes, "in use on the device"
    if host is not None and name in ("host", "peak"):
        yield host.rss_bytes or 0, "RSS of the process"
