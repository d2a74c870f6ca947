"""Program -> Forecast: everything a user asks of a step before it runs. Arithmetic on the simulator's answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lowtide.program import Note, Program
from lowtide.simulate.bfc import OutOfMemory
from lowtide.simulate.order import tidy_order
from lowtide.simulate.plain import plain_range
from lowtide.simulate.step import Steps, simulate
from lowtide.simulate.timeline import CATEGORIES, Buffer, Timeline

LARGEST_BATCH = 1 << 20


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a step needs at one batch size.

    `timeline` is the fixed order, exact; `plain_low` and `plain_high` are where TensorFlow's own, changing order
    ends up. The law `fixed + per_sample * batch` holds around this batch; `per_sample` is None for a step that was
    traced for one batch only. `largest_batch` is for `budget` bytes, in either order; None when not asked or known.
    """

    timeline: Timeline
    plain_low: int
    plain_high: int
    fixed: int
    per_sample: float | None
    budget: int | None = None
    largest_batch: int | None = None
    notes: tuple[Note, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    compiler: str = ""

    @property
    def peak(self) -> int:
        return self.timeline.chunk_peak

    @property
    def by_category(self) -> dict[str, int]:
        """Bytes at the peak; what the allocator rounds up is in "other", so that they sum to it."""
        totals = dict.fromkeys(CATEGORIES, 0)
        for buffer in self.at_peak():
            totals[buffer.category] += buffer.bytes
        totals["other"] += self.peak - sum(totals.values())
        return totals

    @property
    def by_layer(self) -> dict[str, int]:
        """Bytes alive at the peak by the layer that made them, most first."""
        return _summed(self.at_peak(), lambda buffer: self.timeline.makers[buffer.maker].layer)

    def at_peak(self) -> list[Buffer]:
        return self.timeline.alive_at(self.timeline.peak_at)


def forecast(program: Program, batch: int | None = None, budget: int | None = None) -> Forecast:
    """What the step needs at `batch`, the script's own by default, and the largest batch for `budget` bytes."""
    size = program.batch if batch is None else batch
    timeline = simulate(program, size, tidy_order(program, size))
    plain = plain_range(program, size)
    per_sample, fixed = None, timeline.chunk_peak
    if program.scales:
        per_sample = _slope(program, size, timeline)
        fixed = round(timeline.chunk_peak - per_sample * size)
    largest = None
    if budget is not None and per_sample is not None:
        safe = int(budget * min(1.0, timeline.chunk_peak / plain.high))
        largest = _largest_in_both_orders(program, budget, _guess(safe, fixed, per_sample))
    return Forecast(
        timeline,
        plain.low,
        plain.high,
        fixed,
        per_sample,
        budget,
        largest,
        program.notes,
        program.versions,
    )


def _slope(program: Program, batch: int, timeline: Timeline) -> float:
    """Requested bytes a sample, from here to twice here: chunks would add the allocator's accidents.

    So few steps will do: it is the allocator that changes from step to step.
    """
    double = Steps(program, 2 * batch, tidy_order(program, 2 * batch)).unlimited
    return (double.peak - timeline.peak) / batch


def _guess(budget: int, fixed: int, per_sample: float) -> int:
    if per_sample <= 0:
        return LARGEST_BATCH
    return min(LARGEST_BATCH, max(1, int((budget - fixed) / per_sample)))


def _largest_in_both_orders(program: Program, budget: int, start: int) -> int:
    """The largest batch that fits in the fixed order and, by the upper end of its range, in a plain run.

    A range takes long to find, so few are looked at: each time the plain run needs more than there is, as much less is
    allowed to the fixed order.
    """
    allowed = budget
    while largest := largest_batch(program, allowed, start):
        high = plain_range(program, largest).high
        if high <= budget:
            break
        allowed = min(allowed * budget // high, allowed - 1)
        start = max(1, largest * budget // high)
    return largest


def fits(program: Program, batch: int, budget: int) -> bool:
    """Whether the step at `batch` needs no more than `budget` bytes, and an allocator that has no more gets through."""
    steps = Steps(program, batch, tidy_order(program, batch))
    try:
        steps.timeline(budget)
    except OutOfMemory:
        return False
    return steps.unlimited.chunk_peak <= budget


def largest_batch(program: Program, budget: int, start: int = 1) -> int:
    """The largest batch that fits, 0 when none does. `start` is a guess; a good one saves simulations."""
    low, high = _bracket(lambda size: fits(program, size, budget), start)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(program, middle, budget):
            low = middle
        else:
            high = middle
    return low


def _bracket(good: Callable[[int], bool], start: int) -> tuple[int, int]:
    """(a size that is good or 0, a larger one that is not or is beyond all bounds)."""
    step = max(1, start // 32)
    if good(start):
        low = start
        while (high := low + step) <= LARGEST_BATCH and good(high):
            low, step = high, 2 * step
        return low, min(high, LARGEST_BATCH + 1)
    high = start
    while (low := high - step) > 0 and not good(low):
        high, step = low, 2 * step
    return max(low, 0), high


def largest_buffers(forecast: Forecast, count: int) -> Sequence[Buffer]:
    return sorted(forecast.at_peak(), key=lambda buffer: -buffer.bytes)[:count]


def _summed(buffers: Sequence[Buffer], key: Callable[[Buffer], str]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for buffer in buffers:
        totals[key(buffer)] = totals.get(key(buffer), 0) + buffer.bytes
    return dict(sorted(totals.items(), key=lambda item: -item[1]))
