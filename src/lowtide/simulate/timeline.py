"""What a step does to memory, as data: every buffer, from when to when, and who made it.

Time is counted in allocations and frees, not seconds. A buffer lives in the half-open interval [start, stop).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from lowtide.program import Source

CATEGORIES = ("parameters", "optimizer state", "gradients", "activations", "temporaries", "inputs", "other")


class Buffer(NamedTuple):
    """One allocation. `maker` is an index into `Timeline.makers`. `stop` is None when it outlives the step."""

    bytes: int
    start: int
    stop: int | None
    maker: int
    category: str


class Maker(NamedTuple):
    """An op as far as a reader wants to know it."""

    name: str
    kind: str
    layer: str
    source: Source | None


class Preparation(NamedTuple):
    """What to do to the allocator before the first step, so that every step finds the same free space.

    `small_change`: (bytes, count) of gaps to leave between small chunks that stay. Small tensors then go into the gaps
    and never split the free space that large ones need whole; without them the peak drifts from step to step.
    `grow`: bytes to allocate and free at once, for a region that the step fits in. `side_by_side`: the gaps are made in
    the largest free chunk, one beside the other, whatever other holes there are.
    """

    small_change: tuple[tuple[int, int], ...] = ()
    grow: int = 0
    side_by_side: bool = False


@dataclass(frozen=True, slots=True)
class Timeline:
    """A step's buffers in the order they were allocated.

    `peak` and `resident` are requested bytes; `chunk_peak` and `chunk_resident` are what the allocator hands out for
    them, the level a limit bites on. `peak_at` is the moment of the chunk peak, `peak_maker` the op that reached it.
    `untouched` of the resident bytes are none of the step's. `preparation` is what makes the allocator behave so.
    """

    batch: int
    buffers: tuple[Buffer, ...]
    makers: tuple[Maker, ...]
    end: int
    resident: int
    peak: int
    chunk_resident: int
    chunk_peak: int
    peak_at: int
    peak_maker: int
    untouched: int = 0
    preparation: Preparation = field(default_factory=Preparation)

    def alive_at(self, moment: int) -> list[Buffer]:
        return [b for b in self.buffers if b.start <= moment and (b.stop is None or moment < b.stop)]
