"""Program + batch + order -> Timeline: the executor's model drives the allocator's model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from random import Random
from typing import NamedTuple

from lowtide.errors import BadUse
from lowtide.ops import is_branching, is_lowered
from lowtide.program import Chunk, Program
from lowtide.simulate.bfc import OutOfMemory, rounded
from lowtide.simulate.buffers import ALWAYS, Trace
from lowtide.simulate.categories import op_categories
from lowtide.simulate.machine import programs_of, run
from lowtide.simulate.replay import ARGUMENT, NO_LIMIT, RESIDENT, Peak, Replay
from lowtide.simulate.timeline import Buffer, Maker, Preparation, Timeline
from lowtide.simulate.unroll import ops_executed
from lowtide.units import format_size

FEWEST_STEPS, SOME_STEPS, MOST_STEPS = 3, 8, 16
"""Large variables that are assigned wander from step to step, and the peak with them: the largest of a few is reported,
of more where a step is short. A plan writes them in place: fewer tell, and very many plans are looked at."""
SOME_OPS, MOST_OPS = 24_000, 96_000
"""Ops in all these steps."""
TIMES_IN_LOOPS = 3
"""As many where most are in loops: they are small, and pieces wander more."""
LOOSE_ENDS = 0.015
"""Of an allocator: what steps with loops have to leave alone. What a loop held is freed at its end in any order, beside
the ops that come next; where pieces lie wanders from step to step by as much."""
RUNS = 4
"""Runs that an allocator which cannot grow has to get through, each with its batches coming at other moments."""


def simulate(
    program: Program, batch: int | None = None, order: Sequence[int] | None = None, limit: int | None = None
) -> Timeline:
    """What the step does to memory at `batch` when its ops run in `order`, the step's own by default.

    Stands for: run the step a few times on an empty device and look at the worst one. Raises `OutOfMemory` when the
    allocator, given `limit` bytes, refuses.
    """
    return Steps(program, batch, order, MOST_STEPS, MOST_OPS).timeline(limit)


class Steps:
    """A step, executed a few times on buffers without contents: what it asks of an allocator, whichever that is."""

    def __init__(
        self,
        program: Program,
        batch: int | None = None,
        order: Sequence[int] | None = None,
        most_steps: int = SOME_STEPS,
        most_ops: int = SOME_OPS,
    ) -> None:
        self.program = program
        self.batch = program.batch if batch is None else batch
        steps = _steps_to_play(program, self.batch, most_steps, most_ops)
        habits = _habits(program, steps)
        self._habits = [run(program, self.batch, order, steps, arms) for arms in habits]
        self._turns = [min(len(arms) or _longest_turns(program), steps - 1) for arms in habits]
        last = self._habits[0][-1]
        self._small = min(LARGEST_GAP, max(SMALLEST_GAP, _most_alive(last) // SMALL_SHARE))
        self._small_change = _small_change(last, self._small)
        self.most_alive = _most_alive(self._habits[0][0])
        """Requested bytes."""
        self.loose_ends = LOOSE_ENDS if has_loose_ends(program) else 0.0

    def timeline(self, limit: int | None = None) -> Timeline:
        """On the allocator whose map the Program has, or an empty one, that grows up to `limit`.

        It is prepared (see `Preparation`), growing it beforehand only where that helps.
        """
        outcomes = []
        refused = None
        for grow in (0, self.most_alive):
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
        most = _most_alive_at_once(trace, lambda bytes_: rounded(bytes_) if self._small < bytes_ <= size else 0)
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
        return _timeline(program, self.batch, self._worst(program, limit, self._with(gaps, chunks)))

    def goes_beside_a_pipeline(self, chunks: Sequence[Chunk], gaps: Sequence[int], ahead: int, early: float) -> bool:
        """Whether the same goes through while an input pipeline makes batches until `ahead` are ready, each in that
        first part of a step: a few runs in which they come at other moments."""
        nothing_comes = not ahead and not self.loose_ends
        return nothing_comes or self._goes(chunks, self._with(gaps, chunks), ahead, early, RUNS)

    def goes_on_beside_a_pipeline(self, chunks: Sequence[Chunk], ahead: int, early: float) -> bool:
        """The same for steps that have run on the allocator that has this map: as exact, so fewer runs tell."""
        return self._goes(chunks, None, ahead, early, RUNS // 2)

    def _goes(
        self, chunks: Sequence[Chunk], preparation: Preparation | None, ahead: int, early: float, runs: int
    ) -> bool:
        """Without a preparation: they have run, each branch among them, whose constants are there by now."""
        program, limit = self._in(chunks)
        for seed in range(runs):
            for habit, turns in zip(self._habits, self._turns, strict=True):
                traces = habit if preparation is not None else habit[turns:]
                try:
                    replay = Replay(program, traces[0], limit, has_run=preparation is None)
                    if preparation is not None:
                        replay.prepare(preparation)
                        replay.take(int(limit * self.loose_ends))
                    replay.steps_beside_a_pipeline(traces, ahead, early, Random(seed))
                except OutOfMemory:
                    return False
        return True

    def elements_to_come(self, chunks: Sequence[Chunk]) -> list[int]:
        """Bytes of each element that a pipeline makes for a batch, where the map shows that it holds such."""
        program, limit = self._in(chunks)
        try:
            return Replay(program, self._habits[0][0], limit).pipeline.elements_to_come
        except OutOfMemory:
            return []

    def _in(self, chunks: Sequence[Chunk]) -> tuple[Program, int]:
        return replace(self.program, chunks=tuple(chunks)), sum(chunk.bytes for chunk in chunks)

    def _with(self, gaps: Sequence[int], chunks: Sequence[Chunk]) -> Preparation:
        """These gaps, and small change as far as there is none: another step may have set that apart."""
        small = [(gap, count - _free_between(chunks, gap, 2 * gap)) for gap, count in self._small_change]
        return Preparation((*((g, c) for g, c in small if c > 0), *((gap, 1) for gap in gaps)), side_by_side=True)

    def _worst(self, program: Program, limit: int | None, preparation: Preparation) -> _Outcome:
        """Of all habits."""
        outcomes = (_worst(program, traces, limit, preparation) for traces in self._habits)
        return max(outcomes, key=lambda outcome: outcome.peak.chunk_peak)


def has_loose_ends(program: Program) -> bool:
    return any(op.trips is not None and is_lowered(op) for op in program.ops)


def _steps_to_play(program: Program, batch: int, most_steps: int, most_ops: int) -> int:
    ops = ops_executed(program, batch)
    if ops * most_steps <= most_ops:
        return most_steps
    few = min(most_ops // len(program.ops), TIMES_IN_LOOPS * most_ops // ops)
    return min(SOME_STEPS, max(FEWEST_STEPS, few))


def _habits(program: Program, steps: int) -> tuple[tuple[int, ...], ...]:
    """How a step may choose between branches from step to step: always the largest, in turn, or one seldom.

    A branch that sets a variable anew leaves other chunks to the next step than one that adds to it. Where all branches
    are known to come in turns, and these are over in so many steps, it is as they say: ().
    """
    branching = [op for part in (program, *program.functions) for op in part.ops if is_branching(op)]
    if not branching:
        return ((0,),)
    if all(op.turns for op in branching) and _longest_turns(program) < steps:
        return ((),)
    often = (0,), (0, 1), (1, 1, 1, 0)
    return often if steps < len(ONE_IN_TEN) else (*often, ONE_IN_TEN)


def _longest_turns(program: Program) -> int:
    return max(len(op.turns) for op in program.ops)


ONE_IN_TEN = (*(1,) * 9, 0)


def _free_between(chunks: Sequence[Chunk], least: int, below: int) -> int:
    return sum(1 for chunk in chunks if not chunk.in_use and least <= chunk.bytes < below)


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


def _holders_at(trace: Trace, moment: int) -> list[tuple[int, int]]:
    """Who each buffer belonged to at the peak: the op that made it, reused it, or the variable that took it over."""
    holders = list(trace.maker)
    for when, buffer, who in trace.taken:
        if when <= moment or trace.start[buffer] > moment:
            holders[buffer] = who
    return holders


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
