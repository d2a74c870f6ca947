"""Program + batch + order -> Timeline: the executor's model drives the allocator's model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from random import Random
from typing import NamedTuple

from lowtide.errors import BadUse
from lowtide.ops import is_branching
from lowtide.program import Chunk, Program
from lowtide.simulate.bfc import QUANTUM, BfcAllocator, OutOfMemory
from lowtide.simulate.buffers import ALWAYS, Trace
from lowtide.simulate.categories import op_categories
from lowtide.simulate.machine import programs_of, run
from lowtide.simulate.timeline import Buffer, Maker, Preparation, Timeline
from lowtide.units import format_size

NO_LIMIT = 1 << 44
FEWEST_STEPS, MOST_STEPS, OPS_IN_ALL = 3, 8, 24_000
"""Large variables that are assigned wander from step to step, and the peak with them: the largest of a few is reported,
of more where a step is short."""
RUNS = 4
"""Runs that an allocator which cannot grow has to get through, each with its batches coming at other moments."""


def simulate(
    program: Program, batch: int | None = None, order: Sequence[int] | None = None, limit: int | None = None
) -> Timeline:
    """What the step does to memory at `batch` when its ops run in `order`, the step's own by default.

    Stands for: run the step a few times on an empty device and look at the worst one. Raises `OutOfMemory` when the
    allocator, given `limit` bytes, refuses.
    """
    return Steps(program, batch, order).timeline(limit)


class Steps:
    """A step, executed a few times on buffers without contents: what it asks of an allocator, whichever that is."""

    def __init__(self, program: Program, batch: int | None = None, order: Sequence[int] | None = None) -> None:
        self.program = program
        self.batch = program.batch if batch is None else batch
        steps = min(MOST_STEPS, max(FEWEST_STEPS, OPS_IN_ALL // max(1, len(program.ops))))
        self._habits = [run(program, self.batch, order, steps, arms) for arms in _habits(program)]
        last = self._habits[0][-1]
        self._small = min(LARGEST_GAP, max(SMALLEST_GAP, _most_alive(last) // SMALL_SHARE))
        self._small_change = _small_change(last, self._small)
        self._most_alive = _most_alive(self._habits[0][0])

    def timeline(self, limit: int | None = None) -> Timeline:
        """On the allocator whose map the Program has, or an empty one, that grows up to `limit`.

        It is prepared (see `Preparation`), growing it beforehand only where that helps.
        """
        outcomes = []
        refused = None
        for grow in (0, self._most_alive):
            try:
                outcomes.append(self._worst(self.program, limit, Preparation(self._small_change, grow)))
            except OutOfMemory as error:
                refused = error
        if refused is not None and not outcomes:
            if limit is None:
                most = format_size(NO_LIMIT)
                raise BadUse(f"batch {self.batch}: the step would need more than {most}; ask for a smaller batch")
            raise refused
        return _timeline(self.program, self.batch, min(outcomes, key=lambda outcome: outcome.peak.chunk_peak))

    def gaps_up_to(self, size: int) -> tuple[int, ...]:
        """Free chunks to set apart for tensors larger than small change and of up to `size` bytes: one for each that is
        alive at once with others of its size. All of them then stay out of the space that larger ones need whole."""
        trace = self._habits[0][-1]
        most = _most_alive_at_once(trace, lambda bytes_: _rounded(bytes_) if self._small < bytes_ <= size else 0)
        return tuple(gap for gap, count in sorted(most.items()) for _ in range(count))

    @cached_property
    def unlimited(self) -> Timeline:
        return self.timeline()

    @cached_property
    def alive_at_the_peak(self) -> list[int]:
        """Bytes of each buffer that is alive when most is."""
        return [buffer.bytes for buffer in self.unlimited.alive_at(self.unlimited.peak_at)]

    def timeline_in(self, chunks: Sequence[Chunk], gaps: Sequence[int] = ()) -> Timeline:
        """On an allocator that has this map and cannot grow; `OutOfMemory` when it refuses something.

        `gaps` are bytes of free chunks to set apart besides small change.
        """
        program, limit = self._in(chunks)
        return _timeline(program, self.batch, self._worst(program, limit, self._with(gaps)))

    def goes_beside_a_pipeline(self, chunks: Sequence[Chunk], gaps: Sequence[int], ahead: int, early: float) -> bool:
        """Whether the same goes through while an input pipeline makes batches until `ahead` are ready, each in that
        first part of a step: a few runs in which they come at other moments."""
        program, limit = self._in(chunks)
        for seed in range(RUNS if ahead else 0):
            for traces in self._habits:
                replay = Replay(program, traces[0], limit)
                try:
                    replay.prepare(self._with(gaps))
                    replay.steps_beside_a_pipeline(traces, ahead, early, Random(seed))
                except OutOfMemory:
                    return False
        return True

    def _in(self, chunks: Sequence[Chunk]) -> tuple[Program, int]:
        return replace(self.program, chunks=tuple(chunks)), sum(chunk.bytes for chunk in chunks)

    def _with(self, gaps: Sequence[int]) -> Preparation:
        return Preparation((*self._small_change, *((gap, 1) for gap in gaps)), side_by_side=True)

    def _worst(self, program: Program, limit: int | None, preparation: Preparation) -> _Outcome:
        """Of all habits."""
        outcomes = (_worst(program, traces, limit, preparation) for traces in self._habits)
        return max(outcomes, key=lambda outcome: outcome.peak.chunk_peak)


def _habits(program: Program) -> tuple[tuple[int, ...], ...]:
    """How a step may choose between branches from step to step: always the largest, in turn, or seldom.

    A branch that sets a variable anew leaves other chunks to the next step than one that adds to it.
    """
    if not any(is_branching(op) for part in (program, *program.functions) for op in part.ops):
        return ((0,),)
    return (0,), (0, 1), (1, 1, 1, 0)


SMALLEST_GAP, LARGEST_GAP = 256, 1 << 16
SMALL_SHARE = 2048
"""A tensor is small when it is less than one part in this of all that is alive at the peak."""


def _small_change(trace: Trace, largest: int) -> tuple[tuple[int, int], ...]:
    """A gap for each small tensor alive at once, by powers of two, and a few to spare."""
    gap_of = lambda size: max(SMALLEST_GAP, 1 << (size - 1).bit_length()) if size <= largest else 0  # noqa: E731
    most = _most_alive_at_once(trace, gap_of)
    return tuple((gap, count + count // 4 + 4) for gap, count in sorted(most.items()))


def _most_alive_at_once(trace: Trace, gap_of: Callable[[int], int]) -> dict[int, int]:
    """How many tensors are alive together at most, constants among them, by the gap that each would take; 0: none."""
    alive: dict[int, int] = {}
    most: dict[int, int] = {}
    constants = [(b, True) for b in range(trace.first) if trace.maker[b][0] >= 0]
    for buffer, allocated in (*constants, *trace.log):
        gap = gap_of(trace.bytes[buffer])
        if gap:
            alive[gap] = alive.get(gap, 0) + (1 if allocated else -1)
            most[gap] = max(most.get(gap, 0), alive[gap])
    return most


def _rounded(size: int) -> int:
    return -(-size // QUANTUM) * QUANTUM


class _Outcome(NamedTuple):
    peak: Peak
    trace: Trace
    resident: int
    untouched: int
    preparation: Preparation


def _worst(program: Program, traces: Sequence[Trace], limit: int | None, preparation: Preparation) -> _Outcome:
    replay = Replay(program, traces[0], limit)
    preparation = replay.prepare(preparation)
    peaks = [replay.step(trace) for trace in traces]
    at = max(range(len(peaks)), key=lambda i: peaks[i].chunk_peak)
    peaks[at].chunk_peak = max(peaks[at].chunk_peak, replay.prepared_peak)
    return _Outcome(peaks[at], traces[at], replay.resident, replay.untouched, preparation)


def _most_alive(trace: Trace) -> int:
    live = most = 0
    for buffer, allocated in trace.log:
        live += trace.bytes[buffer] if allocated else -trace.bytes[buffer]
        most = max(most, live)
    return most


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
    fit, it starts empty.
    """

    def __init__(self, program: Program, first: Trace, limit: int | None = None) -> None:
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
        self.untouched = sum(size * len(left) for size, left in claimable.items())
        self._ready = _batches_like(first, claimable)
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
            self._handles[buffer] = self._allocator.allocate(self._sizes[buffer])

    def prepare(self, preparation: Preparation) -> Preparation:
        """Do what `preparation` says, growing no further than the limit allows; returns what was done."""
        allocator = self._allocator
        for buffer in self._constants:
            allocator.free(self._handles[buffer])
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
        allocator.reset_peak()
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
        many as there are now; and something small with each step.

        A batch is freed after its step, and the one that came first takes its place.
        """
        allocate, free, ready = self._allocator.allocate, self._allocator.free, self._ready
        ahead = max(ahead, len(ready))
        small = 0
        for trace in traces:
            handles = self._handles_in(trace)
            batch = [buffer for buffer in range(trace.first) if trace.maker[buffer][0] == ARGUMENT]
            span = int(early * len(trace.log)) + 1
            come = Counter(random.randrange(span) for _ in range(random.randint(0, ahead - len(ready))))
            small_at = random.randrange(len(trace.log) + 1)
            for moment, (buffer, allocated) in enumerate((*trace.log, (-1, False))):
                if moment in come:
                    ready += [[allocate(trace.bytes[part]) for part in batch] for _ in range(come[moment])]
                if moment == small_at:
                    free(small)
                    small = allocate(1)
                if allocated:
                    handles[buffer] = allocate(trace.bytes[buffer])
                elif buffer >= 0:
                    free(handles[buffer])
            for part in batch:
                free(handles[part])
            following = ready.pop(0) if ready else [allocate(trace.bytes[part]) for part in batch]
            for part, handle in zip(batch, following, strict=True):
                handles[part] = handle
            self._keep(trace, handles)

    def _handles_in(self, trace: Trace) -> list[int]:
        return self._handles + [0] * (len(trace.bytes) - trace.first)

    def _keep(self, trace: Trace, handles: Sequence[int]) -> None:
        self._handles = [handle for handle, stop in zip(handles, trace.stop, strict=True) if stop == ALWAYS]


SMALLEST_BATCH = 1024  # bytes: chunks of fewer may be anything


def _batches_like(first: Trace, claimable: dict[int, list[int]]) -> list[list[int]]:
    """What lies on the device besides and is of the sizes of the step's batch: batches that a pipeline has ready."""
    sizes = [first.bytes[buffer] for buffer in range(first.first) if first.maker[buffer][0] == ARGUMENT]
    found: list[list[int]] = []
    while max(sizes, default=0) >= SMALLEST_BATCH and all(
        len(claimable.get(size, ())) >= count for size, count in Counter(sizes).items()
    ):
        found.append([claimable[size].pop() for size in sizes])
    return found


def _timeline(program: Program, batch: int, outcome: _Outcome) -> Timeline:
    peak, trace = outcome.peak, outcome.trace
    programs = programs_of(program)
    categories = [op_categories(part) for part in programs]
    numbers: dict[tuple[int, int], int] = {}
    makers: list[Maker] = []

    def number(where: tuple[int, int]) -> int:
        if where not in numbers:
            numbers[where] = len(makers)
            makers.append(_maker(program, programs, where))
        return numbers[where]

    buffers = []
    holders = _holders_at(trace, peak.moment)
    for index, size in enumerate(trace.bytes):
        where = holders[index]
        stop = trace.stop[index]
        buffers.append(
            Buffer(
                size,
                trace.start[index],
                None if stop == ALWAYS else stop,
                number(where),
                "temporaries" if index in trace.scratch else _category(program, categories, where),
            )
        )
    if outcome.untouched:
        makers.append(Maker("data and other tensors", "tensors", "", None))
        buffers.append(Buffer(outcome.untouched, ALWAYS, None, len(makers) - 1, "inputs"))
    reached = number(trace.maker[trace.log[peak.moment][0]]) if trace.log else 0
    return Timeline(
        batch=batch,
        buffers=tuple(buffers),
        makers=tuple(makers),
        end=len(trace.log),
        resident=sum(trace.bytes[: trace.first]) + outcome.untouched,
        peak=peak.requested,
        chunk_resident=outcome.resident,
        chunk_peak=peak.chunk_peak,
        peak_at=peak.moment,
        peak_maker=reached,
        untouched=outcome.untouched,
        preparation=outcome.preparation,
    )


def _most_certain_first(program: Program, first: Trace) -> list[int]:
    """Buffers from outside the step, those with a known address before those that may take any chunk of their size."""
    outside = [b for b in range(first.first) if first.maker[b][0] < 0]
    return sorted(outside, key=lambda b: _address(program, first.maker[b]) is None)


def _address(program: Program, maker: tuple[int, int]) -> int | None:
    return program.residents[maker[1]].address if maker[0] == RESIDENT else None


def _holders_at(trace: Trace, moment: int) -> list[tuple[int, int]]:
    """Who each buffer belonged to at the peak: the op that made it, reused it, or the variable that took it over."""
    holders = list(trace.maker)
    for when, buffer, who in trace.taken:
        if when <= moment or trace.start[buffer] > moment:
            holders[buffer] = who
    return holders


RESIDENT, ARGUMENT = -1, -2
"""First element of `Trace.maker` for what no op made."""


def _maker(program: Program, programs: Sequence[Program], where: tuple[int, int]) -> Maker:
    path, index = where
    if path == RESIDENT:
        resident = program.residents[index]
        return Maker(resident.name, "variable", resident.layer, resident.source)
    if path == ARGUMENT:
        value = program.inputs[index]
        name = next(op.name for op in program.ops if value in op.outputs)
        return Maker(name, "input", "", None)
    op = programs[path].ops[index]
    return Maker(op.name, op.kind, op.layer, op.source)


def _category(program: Program, categories: Sequence[Sequence[str]], where: tuple[int, int]) -> str:
    path, index = where
    if path == RESIDENT:
        return program.residents[index].category
    return "inputs" if path == ARGUMENT else categories[path][index]
