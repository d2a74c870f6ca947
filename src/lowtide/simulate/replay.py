"""An allocator's model that is given one step after another, as the executor's model wrote them down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

from lowtide.program import Program
from lowtide.simulate.bfc import QUANTUM, BfcAllocator
from lowtide.simulate.buffers import ALWAYS, Trace
from lowtide.simulate.pipeline import Part, Pipeline
from lowtide.simulate.timeline import Preparation

NO_LIMIT = 1 << 44
RESIDENT, ARGUMENT = -1, -2
"""First element of `Trace.maker` for what no op made."""


class Peak:
    """The worst moment of one step."""

    __slots__ = ("chunk_peak", "moment", "requested")

    def __init__(self) -> None:
        self.requested = self.chunk_peak = 0
        self.moment = 0


class Replay:
    """An allocator that has the residents in it and is given one step after another.

    It resumes the device's own allocator where its map is known; the residents are then the chunks of their sizes,
    and `untouched` are the requested bytes that nobody claims. Otherwise, or under a limit that the map does not
    fit, it starts empty. Where the step `has_run` on it, its constants are there too.
    """

    def __init__(self, program: Program, first: Trace, limit: int | None = None, has_run: bool = False) -> None:
        chunks = program.chunks or ()
        if limit is not None and sum(chunk.bytes for chunk in chunks) > limit:
            chunks = ()
        self._allocator = BfcAllocator.resumed(chunks, NO_LIMIT if limit is None else limit)
        claimable: dict[int, list[int]] = {}
        for chunk in reversed(chunks):
            if chunk.in_use:
                claimable.setdefault(chunk.requested, []).append(chunk.address)
        self._sizes = first.bytes[: first.first]
        self._handles = [0] * first.first
        self._constants = [b for b in range(first.first) if first.maker[b][0] >= 0]
        for buffer in _most_certain_first(program, first):
            self._handles[buffer] = self._claim(program, first.maker[buffer], self._sizes[buffer], claimable)
        there = claimable if has_run else {}
        for buffer in self._constants:
            same = there.get(self._sizes[buffer])
            self._handles[buffer] = same.pop() if same else 0
        self.untouched = sum(size * len(left) for size, left in claimable.items())
        self.pipeline = Pipeline(self._allocator, _parts(program, first), claimable)
        self._place_constants()
        self.resident = self.prepared_peak = self._allocator.in_use

    def _claim(self, program: Program, maker: tuple[int, int], size: int, claimable: dict[int, list[int]]) -> int:
        """The chunk of a resident or an argument: where it lies, or one of its size, or a new one."""
        found, address = claimable.get(size, []), _address(program, maker)
        if address is not None and address in found:
            found.remove(address)
            return address
        if not found and maker[0] == ARGUMENT:  # another batch than the script's own, which makes room for it
            own = claimable.get(program.values[program.inputs[maker[1]]].bytes(program.batch))
            if own:
                self._allocator.free(own.pop())
        return found.pop() if found else self._allocator.allocate(size)

    def _place_constants(self) -> None:
        """They come with the first run of the step."""
        for buffer in self._constants:
            self._handles[buffer] = self._handles[buffer] or self._allocator.allocate(self._sizes[buffer])

    def prepare(self, preparation: Preparation) -> Preparation:
        """Do what `preparation` says, growing no further than the limit allows; returns what was done.

        What is set apart is in use all at once for a moment, which may be more than the step ever needs.
        """
        allocator = self._allocator
        for buffer in self._constants:
            allocator.free(self._handles[buffer])
            self._handles[buffer] = 0
        allocator.reset_peak()
        holes = allocator.free_chunks[:-1] if preparation.side_by_side else []
        stopped = [allocator.allocate(size) for size in holes]
        gaps = []
        for size, count in preparation.small_change:
            for _ in range(count):
                gaps.append(allocator.allocate(size))
                allocator.allocate(1)  # a wall: it stays, so that gaps do not merge
        for gap in (*gaps, *stopped):
            allocator.free(gap)
        grow = min(preparation.grow, (allocator.limit - allocator.reserved) // QUANTUM * QUANTUM)
        allocator.free(allocator.allocate(grow))
        self.prepared_peak = allocator.peak
        self._place_constants()
        self.resident = allocator.in_use
        return preparation._replace(grow=grow)

    @property
    def free_chunks(self) -> list[int]:
        return self._allocator.free_chunks

    def take(self, size: int) -> None:
        """Take a chunk from the allocator, for good."""
        self._allocator.allocate(size)

    def step(self, trace: Trace) -> Peak:
        """Replay a step; what is alive at its end is what the next one starts with."""
        allocator, handles = self._allocator, self._handles_in(trace)
        allocator.reset_peak()
        peak = Peak()
        peak.chunk_peak, peak.requested = allocator.in_use, allocator.requested_in_use
        for moment, (buffer, allocated) in enumerate(trace.log):
            if not allocated:
                allocator.free(handles[buffer])
                continue
            handles[buffer] = allocator.allocate(trace.bytes[buffer])
            if allocator.in_use > peak.chunk_peak:
                peak.chunk_peak, peak.moment = allocator.in_use, moment
            if allocator.requested_in_use > peak.requested:
                peak.requested = allocator.requested_in_use
        self._keep(trace, handles)
        return peak

    def steps_beside_a_pipeline(self, traces: Sequence[Trace], ahead: int, early: float, random: Random) -> None:
        """Replay steps while batches come, at any moment of that first part of a step, until `ahead` are ready, or as
        many as there are now; and something small with each step. The data may come to its end meanwhile.

        A batch is freed after its step, and the one that came first takes its place.
        """
        allocate, free, pipeline = self._allocator.allocate, self._allocator.free, self.pipeline
        ahead = max(ahead, len(pipeline.ready))
        ends_in = random.randrange(2 * len(traces))
        small = 0
        for number, trace in enumerate(traces):
            handles = self._handles_in(trace)
            batch = [buffer for buffer in range(trace.first) if trace.maker[buffer][0] == ARGUMENT]
            span = int(early * len(trace.log)) + 1
            most = ahead - len(pipeline.ready) if number <= ends_in else 0
            come = Counter(random.randrange(span) for _ in range(random.randint(0, most)))
            end_at = random.randrange(max(come, default=0), len(trace.log) + 1) if number == ends_in else -1
            small_at = random.randrange(len(trace.log) + 1)
            for moment, (buffer, allocated) in enumerate((*trace.log, (-1, False))):
                for _ in range(come.get(moment, 0)):
                    pipeline.make_batch(random)
                if moment == end_at:
                    pipeline.end()
                if moment == small_at:
                    free(small)
                    small = allocate(1)
                if allocated:
                    handles[buffer] = allocate(trace.bytes[buffer])
                elif buffer >= 0:
                    free(handles[buffer])
            for part in batch:
                free(handles[part])
            for part, handle in zip(batch, pipeline.take_batch(), strict=True):
                handles[part] = handle
            self._keep(trace, handles)

    def _handles_in(self, trace: Trace) -> list[int]:
        return self._handles + [0] * (len(trace.bytes) - trace.first)

    def _keep(self, trace: Trace, handles: Sequence[int]) -> None:
        self._handles = [handle for handle, stop in zip(handles, trace.stop, strict=True) if stop == ALWAYS]


def _parts(program: Program, first: Trace) -> list[Part]:
    """What a step is given anew: the tensors of a batch."""
    arguments = [buffer for buffer in range(first.first) if first.maker[buffer][0] == ARGUMENT]
    samples = (program.values[program.inputs[first.maker[buffer][1]]].bytes(1) for buffer in arguments)
    return [Part(first.bytes[buffer], sample) for buffer, sample in zip(arguments, samples, strict=True)]


def _most_certain_first(program: Program, first: Trace) -> list[int]:
    """Buffers from outside the step, those with a known address before those that may take any chunk of their size."""
    outside = [b for b in range(first.first) if first.maker[b][0] < 0]
    return sorted(outside, key=lambda b: _address(program, first.maker[b]) is None)


def _address(program: Program, maker: tuple[int, int]) -> int | None:
    return program.residents[maker[1]].address if maker[0] == RESIDENT else None
