"""A loosened order, played on the allocator's model: a few of the very many ways that its ops may interleave.

How many bytes are requested at once has a bound that holds for all of them (`lowtide.simulate.overlap`). Which pieces
an allocator cuts has none, so it is tried: half of the steps with the timing of `lowtide.simulate.executor`, half with
none at all, any op that may run being as likely as any other to be next. TensorFlow finds more ways than these: what
was not played may be off by some percent more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from math import inf
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from lowtide.ops import TRIPS_AT_ONCE
from lowtide.program import Op, Program
from lowtide.simulate.bfc import OutOfMemory
from lowtide.simulate.buffers import Trace
from lowtide.simulate.executor import BUSY, THREADS, Executor
from lowtide.simulate.machine import run_overlapped
from lowtide.simulate.replay import Replay
from lowtide.simulate.timeline import Timeline
from lowtide.simulate.unroll import unrolled

PLAYED, FEWEST_PLAYED = 8, 2
"""Steps, one after another on the same allocator; fewer if they are long, where each has very many ways in it."""
OPS_PLAYED = 80_000
"""In all of them, about."""
MOST_OPS = 120_000
"""In one step whose loops are written out: longer ones are not played."""
TOLERANCE = 0.002
"""Of the order's own peak: what chunks may always exceed it by."""
NEAR, FAR = 0.012, 1.5
"""Of the predicted peak: interleavings that differ by more are given up, unless the ceiling is so many times higher."""
UNPLAYED = 0.01
"""Of the ceiling: left for interleavings that were not played."""


class Loose(NamedTuple):
    """A partial order of executions, numbered as in the total order that it came from.

    `after[n]`: what n waits for besides what it reads, an execution or, as its complement `~g`, gate g. A gate is
    passed when all of `gates[g]` are done, executions and gates likewise. `bodies[n]`: the same for the body of loop n,
    of whose trips so many `at_once` may be under way. Without `bodies` all go one by one, as they are listed.
    """

    after: tuple[tuple[int, ...], ...]
    gates: tuple[tuple[int, ...], ...] = ()
    bodies: Mapping[int, Loose] = MappingProxyType({})
    at_once: int = 1


class Ceiling(NamedTuple):
    """What the chunks of a step have to stay below: `limit` bytes, `ahead` of them for batches that wait.

    Without a limit, the peak of the fixed order. `walled`: the allocator has these bytes and cannot grow, so that one
    request refused is the end of the run.
    """

    limit: int | None = None
    ahead: int = 0
    walled: bool = False


def keeps(
    program: Program, batch: int, order: Sequence[int], loose: Loose, timeline: Timeline, ceiling: Ceiling
) -> bool:
    """Whether every interleaving played stays below the ceiling, and near the peak that was predicted.

    An allocator that cannot grow has to get through them with a chunk as large as the step's largest taken from it,
    and what is ahead; how its chunks add up does not matter then. Far below the ceiling nobody minds the prediction.
    """
    held = _with_gates(program, order, loose)
    flat, twins = unrolled(held, batch, most_ops=MOST_OPS) if loose.bodies else (held, None)
    traces = run_overlapped(flat, batch, _plays(flat, batch, twins))
    first = next(traces)
    predicted, limit = timeline.chunk_peak, ceiling.limit
    watches = []
    if limit is not None and predicted * FAR > limit:
        watches.append(_Watch(flat, first, timeline, predicted * (1 - NEAR), predicted * (1 + NEAR)))
    if ceiling.walled:
        taken = max((b.bytes for b in timeline.buffers if b.start >= 0), default=0), ceiling.ahead
        watches.append(_Watch(flat, first, timeline, 0, inf, limit, taken))
    else:
        most = 0.0 if limit is None else limit * (1 - UNPLAYED) - ceiling.ahead
        watches.append(_Watch(flat, first, timeline, 0, max(predicted * (1 + TOLERANCE), most)))
    try:
        return all(watch.goes_well(trace) for trace in chain([first], traces) for watch in watches)
    except OutOfMemory:
        return False


class _Watch:
    """An allocator's model that plays one step after another, and whether each peak is where it may be."""

    def __init__(
        self,
        program: Program,
        first: Trace,
        timeline: Timeline,
        least: float,
        most: float,
        limit: int | None = None,
        taken: Sequence[int] = (),
    ) -> None:
        self._replay = Replay(program, first, limit)
        self._replay.prepare(timeline.preparation)
        for size in taken:
            self._replay.take(size)
        self._least, self._most = least, most

    def goes_well(self, trace: Trace) -> bool:
        return self._least <= self._replay.step(trace).chunk_peak <= self._most


def _plays(held: Program, batch: int, twins: Sequence[int] | None) -> Iterator[list[int]]:
    executor, random = Executor(held, batch, twins, luck=BUSY), Random(0)
    anyhow = _Anyhow(held)
    for turn in range(min(PLAYED, max(FEWEST_PLAYED, OPS_PLAYED // max(1, len(held.ops))))):
        yield executor.run(random) if turn % 2 else anyhow.run(random)


class _Anyhow:
    """An executor without sense of time: whatever may start or finish next does, by lot."""

    def __init__(self, program: Program) -> None:
        maker = {value: index for index, op in enumerate(program.ops) for value in op.outputs}
        before = [{*(maker[v] for v in op.inputs if v in maker), *op.after} for op in program.ops]
        self._waiting = [len(those) for those in before]
        self._followers: list[list[int]] = [[] for _ in program.ops]
        for index, those in enumerate(before):
            for other in those:
                self._followers[other].append(index)

    def run(self, random: Random) -> list[int]:
        """One step: an op's index where it starts, `~index` where it is done."""
        waiting = list(self._waiting)
        ready = [index for index, count in enumerate(waiting) if not count]
        running: list[int] = []
        events = []
        while ready or running:
            if ready and len(running) < THREADS:
                running.append(_drawn(ready, random))
                events.append(running[-1])
                continue
            done = _drawn(running, random)
            events.append(~done)
            for follower in self._followers[done]:
                waiting[follower] -= 1
                if not waiting[follower]:
                    ready.append(follower)
        return events


def _drawn(urn: list[int], random: Random) -> int:
    at = int(random.random() * len(urn))
    urn[at], urn[-1] = urn[-1], urn[at]
    return urn.pop()


def _with_gates(program: Program, order: Sequence[int], loose: Loose) -> Program:
    """The Program with the edges of `loose` in it, gates as ops of their own."""
    first = len(program.ops)
    number = lambda n: order[n] if n >= 0 else first + ~n  # noqa: E731
    ops = list(program.ops)
    for n, index in enumerate(order):
        ops[index] = replace(ops[index], after=(*ops[index].after, *map(number, loose.after[n])))
    gates = [Op(f"gate{g}", "NoOp", (), (), tuple(map(number, waits))) for g, waits in enumerate(loose.gates)]
    functions = list(program.functions)
    for n, inside in loose.bodies.items():
        loop = ops[order[n]]
        ops[order[n]] = replace(loop, attrs={**loop.attrs, TRIPS_AT_ONCE: inside.at_once})
        body = program.functions[loop.bodies[1]]
        functions[loop.bodies[1]] = _with_gates(body, range(len(body.ops)), _without_gates(inside))
    return replace(program, ops=(*ops, *gates), functions=tuple(functions))


def _without_gates(loose: Loose) -> Loose:
    """The same with more edges: ops that stand in the order in which they can be copied one after another."""
    passed: list[tuple[int, ...]] = []

    def those(waits: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(m for n in waits for m in ((n,) if n >= 0 else passed[~n]))

    for waits in loose.gates:
        passed += (those(waits),)  # a gate waits for earlier ones only
    return loose._replace(after=tuple(map(those, loose.after)), gates=())
