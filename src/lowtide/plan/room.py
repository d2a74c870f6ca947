"""Whether a step goes through an allocator that has so many bytes and no more.

Adding up chunks does not say. An allocator of one region hands out a free chunk whole unless it is twice the request,
so its chunks may add up to all it has while every request still finds one; or a request may find none while enough
bytes are free, in pieces. The replay on the allocator's model decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import NamedTuple

from lowtide.program import Chunk
from lowtide.simulate import OutOfMemory, Steps, Timeline
from lowtide.simulate.bfc import QUANTUM, rounded

NEARLY_ALL = 0.98  # of a budget: what a limited allocator has in its regions at least, once it was grown
TRIES, FEWEST_TRIES = 16, 3  # ways to set free space apart
PIPELINES = ((0, 1.0), (0, 0.15), (1, 0.15))
"""Worst first: how many batches fewer than asked for, and in which first part of a step they come. A pipeline makes one
as soon as one is taken, so early in the step, unless it is slow."""
LARGE_SIZES = 4  # sizes of tensors that matter for that
SMALLEST_GAP = 1 << 16  # bytes
GRAIN = 1 << 20  # a limit is in whole MiB


def is_all_there_is(chunks: Sequence[Chunk] | None, budget: int) -> bool:
    """Whether the allocator whose map this is has been given the budget and no more."""
    return chunks is not None and NEARLY_ALL * budget <= sum(chunk.bytes for chunk in chunks) <= budget


def in_one_region(chunks: Sequence[Chunk], size: int) -> tuple[Chunk, ...]:
    """What is in use, side by side, and the rest of `size` bytes free: the map of an allocator that grew at once."""
    address = start = 1 << 40
    placed = []
    for chunk in chunks:
        if chunk.in_use:
            placed.append(chunk._replace(address=address))
            address += chunk.bytes
    left = (start + size - address) // QUANTUM * QUANTUM
    return (*placed, Chunk(address, left, 0, False)) if left > 0 else tuple(placed)


def resized(chunks: Sequence[Chunk], size: int) -> tuple[Chunk, ...]:
    """The map had the allocator been given `size` bytes: the largest free chunk is that much larger or smaller.

    What is in use stays where it is, as a model that is built again would be. Where that does not add up, all is moved
    into one region.
    """
    more = (size - sum(chunk.bytes for chunk in chunks)) // QUANTUM * QUANTUM
    largest = max((chunk for chunk in chunks if not chunk.in_use), key=lambda chunk: chunk.bytes, default=None)
    joined = all(a.address + a.bytes == b.address for a, b in pairwise(chunks))
    if largest is None or largest.bytes + more <= 0 or not joined:
        return in_one_region(chunks, size)
    moved = (
        chunk._replace(address=chunk.address + more) if chunk.address > largest.address else chunk for chunk in chunks
    )
    return tuple(chunk._replace(bytes=chunk.bytes + more) if chunk is largest else chunk for chunk in moved)


class Fit(NamedTuple):
    """A step that goes through, and beside which of `PIPELINES`: the first is the most that can be asked."""

    timeline: Timeline
    beside: int


def fit_within(steps: Steps, chunks: Sequence[Chunk], ahead: int, tries: int = TRIES) -> Fit | None:
    """The steps on an allocator that has this map and cannot grow; None when it refuses something.

    They also have to go through while an input pipeline has up to `ahead` batches ready. A few ways to set a part of
    the free space apart are tried, as many as `tries`; the first is taken that goes through beside the worst pipeline.
    """
    best = None
    for gaps in islice(_ways(steps, chunks, ahead), tries):
        try:
            timeline = steps.timeline_in(chunks, gaps)
        except OutOfMemory:
            continue
        for beside, (fewer, early) in enumerate(PIPELINES[: best.beside if best else None]):
            if steps.goes_beside_a_pipeline(chunks, gaps, max(ahead - fewer, 0), early):
                best = Fit(timeline, beside)
                break
        if best is not None and best.beside == 0:
            break
    return best


def _ways(steps: Steps, chunks: Sequence[Chunk], ahead: int) -> Iterator[tuple[int, ...]]:
    """Gaps to set apart: for the batches that come, and for whatever would take those; none; and besides, what is left
    over when the free space is cut into the step's large tensors, or parts of it."""
    batch = steps.program.argument_bytes(steps.batch)
    coming = tuple(size for size in batch for _ in range(ahead + 1 if ahead else 0))
    coming += tuple(steps.elements_to_come(chunks)) if ahead else ()
    bases = ((*coming, *steps.gaps_up_to(max(batch))), coming, ()) if coming else ((),)
    yield from bases
    free = max((chunk.bytes for chunk in chunks if not chunk.in_use), default=0) - sum(coming)
    weight: Counter[int] = Counter()
    for size in steps.alive_at_the_peak:
        weight[rounded(size)] += size
    sizes = [size for size, _ in weight.most_common(LARGE_SIZES) if 0 < size < free]
    found = [free % size for size in sizes] + [free % size + size for size in sizes] + [free // n for n in (2, 4, 8)]
    for gap in dict.fromkeys(size // QUANTUM * QUANTUM for size in found):
        if SMALLEST_GAP <= gap < free:
            yield from ((*base, gap) for base in bases)


def smallest_region(several: Sequence[Steps], ahead: int, low: int, high: int) -> int:
    """The smallest allocator like this one that one of these goes through, above `low`, to two parts in a hundred.

    `high` is a guess. In whole MiB: a limit is given in those, and what goes through some bytes need not go through a
    few more.
    """
    chunks = several[0].program.chunks or ()
    tries = max(FEWEST_TRIES, TRIES // len(several))

    def goes(size: int) -> bool:
        there = resized(chunks, size)
        return any(fit_within(steps, there, ahead, tries) is not None for steps in several)

    low, high = low // GRAIN * GRAIN, -(-high // GRAIN) * GRAIN
    while not goes(high):
        low, high = high, -(-(high + high // 8) // GRAIN) * GRAIN
    while high - low > max(GRAIN, high // 50):
        middle = (low + high) // 2 // GRAIN * GRAIN
        low, high = (low, middle) if goes(middle) else (middle, high)
    return high
