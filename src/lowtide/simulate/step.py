"""Program + batch + order -> Timeline: the executor's model drives the allocator's model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lowtide.program import Program
from lowtide.simulate.bfc import QUANTUM, BfcAllocator, OutOfMemory
from lowtide.simulate.categories import op_categories
from lowtide.simulate.machine import ALWAYS, Trace, programs_of, run
from lowtide.simulate.timeline import Buffer, Maker, Timeline

NO_LIMIT = 1 << 44
STEPS = 3
"""Free lists settle after a step or two; the largest chunk peak of these is the one reported."""


def simulate(
    program: Program, batch: int | None = None, order: Sequence[int] | None = None, limit: int | None = None
) -> Timeline:
    """What the step does to memory at `batch` when its ops run in `order`, the step's own by default.

    Stands for: run the step a few times on an empty device and look at the worst one. Two ways to begin are tried,
    letting the allocator grow as it goes and growing it once beforehand; the better one is kept, and
    `Timeline.grow_first` says which. Raises `OutOfMemory` when the allocator, given `limit` bytes, refuses both.
    """
    size = program.batch if batch is None else batch
    traces = run(program, size, order, STEPS)
    aside = untouched(program, size)
    room = None if limit is None else max(0, limit - aside)
    outcomes = []
    refused = None
    for grow_first in (0, _most_alive(traces[0])):
        try:
            outcomes.append(_worst(traces, room, grow_first))
        except OutOfMemory as error:
            refused = error
    if refused is not None and not outcomes:
        raise refused
    worst = min(outcomes, key=lambda outcome: outcome.peak.chunk_peak)
    return _timeline(program, size, worst, aside)


def untouched(program: Program, batch: int) -> int:
    """Bytes in use on the device that the step has nothing to do with: they count, and move nothing.

    Known when the allocator was asked before the step; the batch it had then was the script's own.
    """
    if program.in_use is None:
        return 0
    batch_bytes = sum(_chunk(program.values[value].bytes(program.batch)) for value in program.inputs)
    return max(0, program.in_use - batch_bytes - sum(_chunk(resident.bytes) for resident in program.residents))


def _chunk(size: int) -> int:
    return -(-size // QUANTUM) * QUANTUM


class _Outcome(NamedTuple):
    peak: Peak
    trace: Trace
    resident: int
    grow_first: int


def _worst(traces: Sequence[Trace], limit: int | None, grow_first: int) -> _Outcome:
    replay = Replay(traces[0], limit, grow_first)
    peaks = [replay.step(trace) for trace in traces]
    at = max(range(len(peaks)), key=lambda i: peaks[i].chunk_peak)
    return _Outcome(peaks[at], traces[at], replay.resident, grow_first)


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
    """An allocator that has the residents in it and is given one step after another."""

    def __init__(self, first: Trace, limit: int | None = None, grow_first: int = 0) -> None:
        self._allocator = BfcAllocator(NO_LIMIT if limit is None else limit)
        self._handles = [self._allocator.allocate(size) for size in first.bytes[: first.first]]
        self.resident = self._allocator.in_use
        self._allocator.free(self._allocator.allocate(grow_first))

    def step(self, trace: Trace) -> Peak:
        """Replay a step; what is alive at its end is what the next one starts with."""
        allocator, handles = self._allocator, self._handles + [0] * (len(trace.bytes) - trace.first)
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
        self._handles = [handle for handle, stop in zip(handles, trace.stop, strict=True) if stop == ALWAYS]
        return peak


def _timeline(program: Program, batch: int, outcome: _Outcome, aside: int) -> Timeline:
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
    if aside:
        makers.append(Maker("data and other tensors", "tensors", "", None))
        buffers.append(Buffer(aside, ALWAYS, None, len(makers) - 1, "inputs"))
    reached = number(trace.maker[trace.log[peak.moment][0]]) if trace.log else 0
    return Timeline(
        batch=batch,
        buffers=tuple(buffers),
        makers=tuple(makers),
        end=len(trace.log),
        resident=sum(trace.bytes[: trace.first]) + aside,
        peak=peak.requested + aside,
        chunk_resident=outcome.resident + aside,
        chunk_peak=peak.chunk_peak + aside,
        peak_at=peak.moment,
        peak_maker=reached,
        grow_first=outcome.grow_first,
    )


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
