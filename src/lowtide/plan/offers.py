"""What would help where no exact plan does: moves that change the numbers, each with what it would buy.

Computed, not guessed: a smaller batch is simulated with the tightest plan found, and the rest are bytes of the
peak of that plan.
"""

from __future__ import annotations

from lowtide.ops import HALVES
from lowtide.program import Program
from lowtide.simulate import Timeline, simulate
from lowtide.units import format_size

WORTH = 0.01
"""Of what the step itself holds at the peak: what would save less is not offered."""
OF_ACTIVATIONS = ("activations", "temporaries")
"""What has the type of the activations: they, and what the backward pass makes of them."""
MUCH = 0.1
"""Of the peak: so much beside the step is worth a word."""


def offers(program: Program, timeline: Timeline, room: int) -> list[str]:
    """For the tightest planned `program`, whose `timeline` needs more than `room` bytes."""
    by_category: dict[str, int] = {}
    for buffer in timeline.alive_at(timeline.peak_at):
        by_category[buffer.category] = by_category.get(buffer.category, 0) + buffer.bytes
    found = []
    step = timeline.peak - timeline.untouched
    if batch := largest_batch_within(program, timeline, room):
        found.append(f"batch {batch} instead of {timeline.batch} fits")
    halved = sum(by_category.get(category, 0) for category in OF_ACTIVATIONS) // 2
    if halved > WORTH * step and not any(value.dtype in HALVES for value in program.values):
        found.append(f"activations in 16 bits save up to {format_size(halved)}")
    if (slots := by_category.get("optimizer state", 0)) > WORTH * step:
        found.append(f"an optimizer without slots saves up to {format_size(slots)}")
    if timeline.untouched > MUCH * timeline.peak:
        size = format_size(timeline.untouched)
        found.append(f"{size} lie beside the step: data made a tensor, batches that a shorter prefetch would not have")
    return found


def largest_batch_within(program: Program, timeline: Timeline, room: int) -> int:
    """A batch, the largest or one short of it, at which the planned `program` stays within `room`; 0 for none.

    Peaks are nearly a line in the batch: two points of it give a guess, and few simulations settle it.
    """
    if not program.scales or timeline.batch < 2:
        return 0
    good, bad, peak = 0, timeline.batch, timeline.chunk_peak
    one = simulate(program, 1).chunk_peak
    if one > room:
        return 0
    good, low = 1, one
    while bad - good > 1:
        share = (room - low) / max(1, peak - low)
        guess = min(bad - 1, max(good + 1, good + int(share * (bad - good))))
        found = simulate(program, guess).chunk_peak
        if found <= room:
            good, low = guess, found
            if bad - good > 1 and share < 1 and simulate(program, good + 1).chunk_peak > room:
                return good
        else:
            bad, peak = guess, found
    return good
