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
from lowtide.simulate.unroll import ops_executed

LARGEST_BATCH = 1 << 20
NEAR = 100
"""Of a batch, one part of so many is near enough where the plain run, which is known roughly, sets the limit."""


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
    largest, notes = None, program.notes
    if budget is not None and per_sample is not None:
        safe = int(budget * min(1.0, timeline.chunk_peak / plain.high))
        played = _largest_played(program, size)
        largest = _largest_in_both_orders(program, budget, _guess(safe, fixed, per_sample), played)
        if largest == played < LARGEST_BATCH:
            largest = _by_the_law(program, budget, played)
            notes = (*notes, Note("the largest batch", "assumed", 0, _BY_THE_LAW.format(played)))
    return Forecast(
        timeline,
        plain.low,
        plain.high,
        fixed,
        per_sample,
        budget,
        largest,
        notes,
        program.versions,
    )


def _slope(program: Program, batch: int, timeline: Timeline) -> float:
    """Requested bytes a sample, from here to twice here: chunks would add the allocator's accidents.

    So few steps will do: it is the allocator that changes from step to step.
    """
    double = Steps(program, 2 * batch, tidy_order(program, 2 * batch)).unlimited
    return (double.peak - timeline.peak) / batch


MOST_OPS = 30_000
"""A step that runs more ops the larger the batch is, a loop with a trip for each sample, is played up to so many."""
_BY_THE_LAW = "by the law beyond {:,} samples: a loop goes round once for each, so that larger steps were not played"


def _largest_played(program: Program, batch: int) -> int:
    """The largest batch that is worth playing: all of them, unless loops run longer for larger ones."""
    if ops_executed(program, LARGEST_BATCH) == ops_executed(program, 1):
        return LARGEST_BATCH
    played = batch
    while played < LARGEST_BATCH and ops_executed(program, 2 * played) <= MOST_OPS:
        played *= 2
    return played


def _by_the_law(program: Program, budget: int, played: int) -> int:
    """The largest batch by what the two largest steps that are played need, in either order."""
    half = max(1, played // 2)
    more, less = (
        max(Steps(program, batch, tidy_order(program, batch)).unlimited.chunk_peak, plain_range(program, batch).high)
        for batch in (played, half)
    )
    per_sample = (more - less) / max(1, played - half)
    return played + _guess(budget, more, per_sample) if budget > more else played


def _guess(budget: int, fixed: int, per_sample: float) -> int:
    if per_sample <= 0:
        return LARGEST_BATCH
    return min(LARGEST_BATCH, max(1, int((budget - fixed) / per_sample)))


def _largest_in_both_orders(program: Program, budget: int, start: int, most: int) -> int:
    """The largest batch that fits in the fixed order and, by the upper end of its range, in a plain run.

    A range takes long to find, so few are looked at: each time the plain run needs more than there is, as much less is
    allowed to the fixed order, which then need not be found to the last sample.
    """
    allowed, search, within, start = budget, _Search(program, most), 1, min(start, most)
    while largest := search.largest(allowed, start, within):
        high = plain_range(program, largest).high
        if high <= budget:
            break
        allowed = min(allowed * budget // high, allowed - 1)
        start = max(1, largest * budget // high)
        within = max(1, start // NEAR)
    return largest


def fits(program: Program, batch: int, budget: int) -> bool:
    """Whether the step at `batch` needs no more than `budget` bytes, and an allocator that has no more gets through."""
    return _goes_within(Steps(program, batch, tidy_order(program, batch)), budget)


def _goes_within(steps: Steps, budget: int) -> bool:
    if steps.most_alive > budget:
        return False
    try:
        steps.timeline(budget)
    except OutOfMemory:
        return False
    return steps.unlimited.chunk_peak <= budget


def largest_batch(program: Program, budget: int, start: int = 1) -> int:
    """The largest batch that fits, 0 when none does. `start` is a guess; a good one saves simulations."""
    return _Search(program).largest(budget, start)


class _Search:
    """Looks for the largest batch where a line through what is known says it is: sizes are lines, and so are peaks,
    nearly. Every other look is halfway, so that an allocator's accidents cannot draw it out."""

    def __init__(self, program: Program, most: int = LARGEST_BATCH) -> None:
        self._program, self._most = program, most
        self._alive: dict[int, int] = {}  # a batch, and the most requested bytes that are alive at once
        self._besides = 0  # what the allocator takes besides, where that was seen last

    def largest(self, budget: int, start: int, within: int = 1) -> int:
        """A batch that fits, while `within` more do not."""
        low, high, guess, stride, looks = 0, self._most + 1, start, max(1, start // 32), 0
        while high - low > within:
            guess = min(max(guess, low + 1), high - 1)
            if self._fits(guess, budget):
                low = guess
            else:
                high = guess
            looks += 1
            if low and high <= self._most:
                guess = self._between(low, high, budget) if looks % 2 else (low + high) // 2
            else:
                guess = low + stride if low else high - stride
                stride *= 2
        return low

    def _fits(self, batch: int, budget: int) -> bool:
        if self._alive.get(batch, 0) > budget:
            return False
        steps = Steps(self._program, batch, tidy_order(self._program, batch))
        self._alive[batch] = steps.most_alive
        if not _goes_within(steps, budget):
            return False
        self._besides = steps.unlimited.chunk_peak - steps.most_alive
        return True

    def _between(self, low: int, high: int, budget: int) -> int:
        below, above = self._alive[low], self._alive[high]
        if above <= below:
            return (low + high) // 2
        return low + (budget - self._besides - below) * (high - low) // (above - below)


def largest_buffers(forecast: Forecast, count: int) -> Sequence[Buffer]:
    return sorted(forecast.at_peak(), key=lambda buffer: -buffer.bytes)[:count]


def _summed(buffers: Sequence[Buffer], key: Callable[[Buffer], str]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for buffer in buffers:
        totals[key(buffer)] = totals.get(key(buffer), 0) + buffer.bytes
    return dict(sorted(totals.items(), key=lambda item: -item[1]))
