"""An input pipeline beside a step: the batches that it has ready on the device, and the elements it makes them of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from lowtide.simulate.bfc import BfcAllocator

SMALLEST = 1024
"""Bytes. Chunks of fewer may be anything."""
FEWEST_ELEMENTS = 2
"""Chunks as large as a sample, for them to be taken for elements of a pipeline: one may be anything."""

AS_LARGE = (1, 4)
"""Of a sample: elements may be bytes that become numbers of four bytes each once they are a batch."""


class Part(NamedTuple):
    """One tensor of a batch: its bytes, and those of one sample."""

    batch: int
    sample: int


class _Elements(NamedTuple):
    """What a pipeline holds of one part, in a shuffle buffer say: of that many bytes each, so many to a batch."""

    bytes: int
    to_a_batch: int
    held: list[int]


class Pipeline:
    """Found on the device by its sizes: what lies there, is nobody's, and is as large as a batch or a sample.

    `claimable` has the addresses of what is nobody's by bytes; what the pipeline holds is taken out.
    """

    def __init__(self, allocator: BfcAllocator, parts: Sequence[Part], claimable: dict[int, list[int]]) -> None:
        self._allocator, self._parts = allocator, parts
        self.ready: list[list[int]] = []
        counts = Counter(part.batch for part in parts)
        while max(counts, default=0) >= SMALLEST and all(
            len(claimable.get(size, ())) >= count for size, count in counts.items()
        ):
            self.ready.append([claimable[part.batch].pop() for part in parts])
        self._elements = [
            _Elements(size, part.batch // part.sample, claimable.pop(size))
            for part in parts
            for size in (part.sample // times for times in AS_LARGE)
            if SMALLEST <= size < part.batch and len(claimable.get(size, ())) >= FEWEST_ELEMENTS
        ]

    @property
    def elements_to_come(self) -> list[int]:
        """Bytes of each element that is made for a batch before those it replaces are gone."""
        return [one.bytes for one in self._elements for _ in range(one.to_a_batch)]

    def make_batch(self, random: Random) -> None:
        """One more is ready. The elements that follow those in it come first: a buffer is filled before it gives."""
        allocator = self._allocator
        for one in self._elements:
            one.held.extend([allocator.allocate(one.bytes) for _ in range(one.to_a_batch)])
        self.ready.append([allocator.allocate(part.batch) for part in self._parts])
        for one in self._elements:
            for _ in range(one.to_a_batch):
                allocator.free(one.held.pop(random.randrange(len(one.held))))

    def take_batch(self) -> list[int]:
        """The one that came first; made now where none is ready."""
        if self.ready:
            return self.ready.pop(0)
        return [self._allocator.allocate(part.batch) for part in self._parts]

    def end(self) -> None:
        """The data is at its end: no element is left to make a batch of."""
        for one in self._elements:
            for element in one.held:
                self._allocator.free(element)
            one.held.clear()
