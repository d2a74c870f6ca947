"""Questions one asks a Recording: which steps are its own, its peak, what the peak is made of, what grows. All pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import NamedTuple, TypeVar

from lowtide.program import Source
from lowtide.record.types import (
    CATEGORIES,
    INSIDE,
    STEP_KINDS,
    TRAINING_KINDS,
    Detail,
    HostLine,
    HostSplit,
    Outcome,
    Recording,
    Sample,
    Site,
    Step,
)
from lowtide.simulate import Buffer, Maker, Timeline

K = TypeVar("K")


def main_kind(recording: Recording) -> str | None:
    """The kind of call that the run repeats: the first of `STEP_KINDS` that trains, else that happened twice."""
    counts = dict.fromkeys(STEP_KINDS, 0)
    for step in recording.steps:
        if step.kind != "stretch":  # of eager code that has no steps
            counts[step.kind] += step.repeats
    repeated = [kind for kind, count in counts.items() if count >= (1 if kind in TRAINING_KINDS else 2)]
    return next(iter(repeated or (kind for kind, count in counts.items() if count)), None)


def main_steps(recording: Recording) -> list[tuple[int, Step]]:
    """The run's own steps, with their numbers in `Recording.steps`."""
    kind = main_kind(recording)
    return [(number, step) for number, step in enumerate(recording.steps) if step.kind == kind]


def step_count(recording: Recording) -> int:
    """How many of its own steps the run made: a row may stand for several."""
    return sum(step.repeats for _, step in main_steps(recording))


def step_spans(recording: Recording) -> dict[int, tuple[int, int]]:
    """By a row's number in `Recording.steps`: which of the run's own steps it stands for, first and last, from 1."""
    spans, before = {}, 0
    for number, step in main_steps(recording):
        spans[number] = (before + 1, before + step.repeats)
        before += step.repeats
    return spans


def failed(outcome: Outcome) -> bool:
    """Ended by an exception, a signal, or with an exit code of its own."""
    return outcome.how in ("exit", "exception", "signal")


def can_be_judged(recording: Recording) -> bool:
    """Whether finding nothing means something: not if the run broke off before it had repeated anything."""
    return recording.outcome.how == "done" or step_count(recording) > 1


def is_of_a_script(recording: Recording) -> bool:
    """Whether `lowtide run` made it, of a script that can be run again; else it is of a block, a cell or a callback.

    Only the parent of a run writes down Lowtide's own version.
    """
    return "lowtide" in recording.run.versions


class Peak(NamedTuple):
    """The most the run ever had: `detail` is the detailed step that tells what it was made of, when one reached it."""

    bytes: int
    time: float
    step: int | None
    detail: Detail | None


NEAR = 0.01
"""A detailed step that came this near to the peak of the run is the peak for whoever asks what it was made of."""


def device_peak(recording: Recording) -> Peak | None:
    """The highest the device's allocator went, by its own count."""
    found = [
        Peak(d.peak_bytes, d.times[d.peak_at], _step_at_peak(recording, d), d) for d in reversed(recording.details)
    ]
    found += [
        Peak(step.device_peak_bytes, step.stop, number, None)
        for number, step in enumerate(recording.steps)
        if step.device_peak_bytes is not None
    ]
    found += [Peak(s.device_peak_bytes, s.time, s.step, None) for s in run_samples(recording) if s.device_peak_bytes]
    if not found:
        return None
    best = max(found, key=lambda peak: (peak.bytes, peak.detail is not None))
    fullest = fullest_detail(recording)
    near = fullest is not None and fullest.peak_bytes >= best.bytes * (1 - NEAR)
    return best._replace(detail=fullest) if near else best


def _step_at_peak(recording: Recording, detail: Detail) -> int:
    """The step in which a detail has its peak.

    The detail of a step that is no call of its own goes from the end of one to the end of the next, and has the calls
    in between in it: where such a call counts for more and reached the peak, it is the one.
    """
    time, steps = detail.times[detail.peak_at], recording.steps
    within = [
        number
        for number, step in enumerate(steps)
        if step.start <= time <= step.stop and (step.device_peak_bytes or 0) >= detail.peak_bytes
    ]
    known = [number for number in (detail.step, *within) if number < len(steps)]
    return min(known, key=lambda number: STEP_KINDS.index(steps[number].kind), default=detail.step)


def fullest_detail(recording: Recording) -> Detail | None:
    """The detailed step with the highest peak, whether or not it was the run's.

    Of several as high the last: more of what was alive then had been seen being made.
    """
    return max(reversed(recording.details), key=lambda detail: detail.peak_bytes, default=None)


def run_samples(recording: Recording) -> list[Sample]:
    """The samples as they count for the run.

    A block that is measured is over before Lowtide takes its last look at everything. Samples of that look are put at
    the end: the device's highest since the sample before is the block's, RSS is not, unless there is no other.
    """
    end = recording.outcome.seconds
    within = [sample for sample in recording.samples if sample.time <= end]
    later = [sample._replace(time=end) for sample in recording.samples if sample.time > end]
    only = later[:1] if not within else []
    return [*within, *only, *(s._replace(rss_bytes=None, swap_bytes=None) for s in later[len(only) :])]


def host_peak(recording: Recording) -> Sample | None:
    """The sample with the highest RSS."""
    known = [sample for sample in run_samples(recording) if sample.rss_bytes]
    return max(known, key=lambda sample: sample.rss_bytes or 0, default=None)


def host_split_at_peak(recording: Recording) -> HostSplit | None:
    """What RSS was made of when it was highest; after the end only where nobody had looked before."""
    within = [split for split in recording.splits if split.time <= recording.outcome.seconds]
    return max(within or recording.splits, key=lambda split: split.rss_bytes, default=None)


def host_lines(recording: Recording) -> list[HostLine]:
    """What Python code held at the last count, most first."""
    last = max((line.time for line in recording.lines), default=0.0)
    return sorted((line for line in recording.lines if line.time == last), key=lambda line: -line.bytes)


def inside(recording: Recording) -> list[Sample]:
    """What the watched process saw of itself."""
    return [sample for sample in recording.samples if sample.by == INSIDE]


def by_category(detail: Detail, moment: int | None = None) -> dict[str, int]:
    """Chunk bytes alive at a moment (the peak), by category, all categories named; they sum to all that was in use."""
    totals = dict.fromkeys(CATEGORIES, 0)
    for allocation in detail.alive_at(detail.peak_at if moment is None else moment):
        totals[allocation.category] += allocation.chunk_bytes
    return totals


def by_layer(detail: Detail) -> dict[str, int]:
    """Chunk bytes alive at the peak, by layer, most first; "" is what belongs to none."""
    return _summed(detail, lambda site: site.layer)


def by_line(detail: Detail) -> dict[Source | None, int]:
    """Chunk bytes alive at the peak, by the user's line, most first."""
    return _summed(detail, lambda site: site.source)


def by_mode(detail: Detail) -> dict[str, int]:
    """Chunk bytes alive at the peak, made by "eager" and by "graph" ops."""
    return _summed(detail, lambda site: site.mode)


def _summed(detail: Detail, key: Callable[[Site], K]) -> dict[K, int]:
    return totalled((key(detail.sites[a.site]), a.chunk_bytes) for a in detail.at_peak)


def totalled(pairs: Iterable[tuple[K, int]]) -> dict[K, int]:
    """Sums by key, largest first."""
    totals: dict[K, int] = {}
    for name, size in pairs:
        totals[name] = totals.get(name, 0) + size
    return dict(sorted(totals.items(), key=lambda item: -item[1]))


def category_curve(detail: Detail) -> list[dict[str, int]]:
    """Chunk bytes in use by category after each event, event 0 being the beginning: what a stacked chart shows."""
    changes: list[list[tuple[str, int]]] = [[] for _ in detail.times]
    for a in detail.allocations:
        changes[a.start].append((a.category, a.chunk_bytes))
        if a.stop is not None:
            changes[a.stop].append((a.category, -a.chunk_bytes))
    now = dict.fromkeys(CATEGORIES, 0)
    curve = []
    for change in changes:
        for category, size in change:
            now[category] += size
        curve.append(dict(now))
    return curve


class Growth(NamedTuple):
    """How something changes from step to step, in the second half of the run: warm-up is left out."""

    bytes_per_step: float
    steps: int
    total_bytes: int


def growth(recording: Recording, of: Callable[[Step], int | None]) -> Growth | None:
    """The median change from one of the run's steps to the next, for `device_bytes` or `rss_bytes` of a Step.

    The median: a buffer that moved or a cache that filled once is no growth. None with fewer than four steps.
    """
    values = [(size, step.repeats) for _, step in main_steps(recording) if (size := of(step)) is not None]
    late = values[len(values) // 2 :]
    if len(late) < 4:
        return None
    changes = sorted((b - a) / repeats for (a, _), (b, repeats) in pairwise(late))
    return Growth(changes[len(changes) // 2], len(changes), late[-1][0] - late[0][0])


def timeline_of(detail: Detail) -> Timeline:
    """A detailed step in the form that predictions have, to lay one beside the other."""
    makers = tuple(Maker(site.op, site.kind, site.layer, site.source) for site in detail.sites)
    buffers = [Buffer(a.requested_bytes, a.start, a.stop, a.site, a.category) for a in detail.allocations]
    return Timeline(
        batch=0,
        buffers=tuple(sorted(buffers, key=lambda buffer: buffer.start)),
        makers=makers,
        end=len(detail.times),
        resident=sum(a.requested_bytes for a in detail.allocations if not a.start),
        peak=detail.peak_requested_bytes,
        chunk_resident=detail.begin_bytes,
        chunk_peak=detail.peak_bytes,
        peak_at=detail.peak_at,
        peak_maker=detail.peak_site if detail.peak_site is not None else 0,
    )


def curve(recording: Recording, of: Callable[[Sample], int | None], width: int) -> list[int]:
    """The highest of `of` in each of `width` equal parts of the run; a part without a sample is as the one before."""
    end = max(recording.outcome.seconds, 1e-9)
    parts: list[int | None] = [None] * width
    for sample in run_samples(recording):
        value = of(sample)
        if value is not None:
            at = min(width - 1, max(0, int(sample.time / end * width)))
            parts[at] = max(parts[at] or 0, value)
    filled, last = [], 0
    for part in parts:
        last = last if part is None else part
        filled.append(last)
    return filled


def reserve_unused(recording: Recording) -> tuple[int, int] | None:
    """(reserved, of it not in use at the peak): what the allocator took from the system, at the most."""
    reserved = max((s.reserved_bytes for s in recording.samples if s.reserved_bytes is not None), default=None)
    peak = device_peak(recording)
    if reserved is None or peak is None:
        return None
    return reserved, max(0, reserved - peak.bytes)
