"""Two Recordings -> what changed: peaks, categories, layers, lines, the host's parts. Pure.

A line is the same line when its text is the same in a file of the same name: an edit above it moves its number, not it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from lowtide.program import Source
from lowtide.record.extremes import line_text
from lowtide.record.types import Detail, HostSplit, Recording
from lowtide.record.views import (
    by_category,
    by_layer,
    by_line,
    device_peak,
    fullest_detail,
    growth,
    host_peak,
    host_split_at_peak,
    main_steps,
)


class Change(NamedTuple):
    """Bytes of one thing in the first recording and in the second; None where it was not recorded."""

    name: str
    before: int | None
    after: int | None

    @property
    def grew(self) -> int:
        return (self.after or 0) - (self.before or 0)


class LineChange(NamedTuple):
    """The same of a user's line: where it stands in the second recording, or stood in the first if it is gone."""

    source: Source | None
    code: str
    before: int
    after: int

    @property
    def grew(self) -> int:
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class Comparison:
    """What grew from one recording to another. Each list has the largest change first; what is the same is left out."""

    peaks: tuple[Change, ...]
    """Always all: the device's peak, what it reserved, the host's peak, growth a step of both."""
    categories: tuple[Change, ...]
    layers: tuple[Change, ...]
    lines: tuple[LineChange, ...]
    host: tuple[Change, ...]
    steps: tuple[int, int]
    seconds_a_step: tuple[float | None, float | None]


def compare(before: Recording, after: Recording) -> Comparison:
    """What changed from `before` to `after`. Categories, layers and lines are at the fullest detailed step's peak."""
    first, second = fullest_detail(before), fullest_detail(after)
    return Comparison(
        peaks=_peaks(before, after),
        categories=_changed(_of(first, by_category), _of(second, by_category)),
        layers=_changed(_of(first, by_layer), _of(second, by_layer)),
        lines=_lines(before, first, after, second),
        host=_changed(_parts(host_split_at_peak(before)), _parts(host_split_at_peak(after))),
        steps=(_steps(before), _steps(after)),
        seconds_a_step=(_seconds(before), _seconds(after)),
    )


def _peaks(before: Recording, after: Recording) -> tuple[Change, ...]:
    measures: dict[str, Callable[[Recording], int | None]] = {
        "device peak": _device,
        "device reserved": lambda r: max((s.reserved_bytes for s in r.samples if s.reserved_bytes), default=None),
        "host peak (RSS)": lambda r: sample.rss_bytes if (sample := host_peak(r)) else None,
        "device growth a step": lambda r: _growth(r, "device_bytes"),
        "host growth a step": lambda r: _growth(r, "rss_bytes"),
    }
    return tuple(Change(name, of(before), of(after)) for name, of in measures.items())


def _device(recording: Recording) -> int | None:
    peak = device_peak(recording)
    return peak.bytes if peak else None


def _growth(recording: Recording, field: str) -> int | None:
    found = growth(recording, lambda step: getattr(step, field))
    return round(found.bytes_per_step) if found else None


def _of(detail: Detail | None, view: Callable[[Detail], dict[str, int]]) -> dict[str, int]:
    return {} if detail is None else view(detail)


def _parts(split: HostSplit | None) -> Mapping[str, int]:
    return split.parts if split else {}


def _changed(before: Mapping[str, int], after: Mapping[str, int]) -> tuple[Change, ...]:
    changes = [Change(name, before.get(name, 0), after.get(name, 0)) for name in {**before, **after}]
    return tuple(sorted((c for c in changes if c.grew), key=lambda change: -abs(change.grew)))


def _lines(before: Recording, first: Detail | None, after: Recording, second: Detail | None) -> tuple[LineChange, ...]:
    rows: dict[Hashable, LineChange] = {}
    for recording, detail, is_after in ((before, first, False), (after, second, True)):
        for source, size in by_line(detail).items() if detail else ():
            code = line_text(recording, source)
            key = None if source is None else (Path(source.file).name, code or source.line)
            old = rows.get(key, LineChange(source, code, 0, 0))
            grown = old._replace(after=old.after + size) if is_after else old._replace(before=old.before + size)
            rows[key] = grown._replace(source=source if is_after else grown.source)
    return tuple(sorted((row for row in rows.values() if row.grew), key=lambda row: -abs(row.grew)))


def _steps(recording: Recording) -> int:
    return sum(step.repeats for _, step in main_steps(recording))


def _seconds(recording: Recording) -> float | None:
    """The median step that was not recorded in full: those are slower."""
    spans = sorted((step.stop - step.start) / step.repeats for _, step in main_steps(recording) if not step.detailed)
    return spans[len(spans) // 2] if spans else None
