"""Where the peak of a plain run falls: TensorFlow's own order, which differs from step to step.

A fixed order has one peak. A plain run has one for each order that its threads happen upon, on an allocator that
remembers the steps before. So: a few steps of the executor's model, replayed one after another on the allocator's
model, and of those after the warm-up the largest peak, which is what a limit must leave room for.

The range is for the largest peak of `MEASURED_STEPS` steps after `WARM_UP_STEPS`. A single step may stay below it,
above all where a loop sums gradients; in a run of many thousand steps one may go beyond it.
"""

from __future__ import annotations

from itertools import chain
from random import Random
from statistics import median
from typing import NamedTuple

from lowtide.program import Program
from lowtide.simulate.executor import Executor
from lowtide.simulate.machine import run_overlapped
from lowtide.simulate.step import Replay
from lowtide.simulate.unroll import loop_backlog, ops_executed, unrolled

WARM_UP_STEPS, MEASURED_STEPS = 2, 5

WARM_UP_WITH_LOOPS, MEASURED_WITH_LOOPS = 1, 2
"""Fewer where there are loops: so many small tensors that little changes from one step to the next."""

BELOW, ABOVE = 0.07, 0.0695
"""How far the largest peak may lie from the predicted one. What decides it is not known before the run: the
machine's speed and load, and the order in which TensorFlow's graph happens to hold its edges."""

BEYOND_EXTREMES = 0.02
"""The same where a loop gives two predictions, for what it leaves waiting at least and at most."""

MOST_PROCESSES = 5
OPS_IN_ALL_PROCESSES = 12_000
"""More processes make a better estimate: as many as these two allow, and at least one."""


class PlainRange(NamedTuple):
    """Chunk bytes, residents included: the level of `Timeline.chunk_peak`."""

    low: int
    high: int


def plain_range(program: Program, batch: int, seed: int = 0) -> PlainRange:
    """The range for the largest of a few peaks of the step as plain TensorFlow runs it at `batch`.

    Stands for: train a few steps, look at the largest peak, and do that again in other processes. The same seed gives
    the same range. Where a loop sums gradients, it reaches from no summand waiting to all that TensorFlow lets wait.
    """
    flat, summands, sums = unrolled(program, batch)
    has_loops = any(op.trips is not None for op in program.ops)
    processes = _Processes(flat, batch, ops_executed(program, batch), has_loops)
    least = most = processes.typical_peak(Executor(flat, batch, early=summands | sums), seed)
    if summands:
        most = max(least, processes.typical_peak(Executor(flat, batch, late=summands), seed))
    elif flat is program:
        most += loop_backlog(program, batch)
    middle = (least + most) / 2
    low = min(least * (1 - BEYOND_EXTREMES), middle * (1 - BELOW))
    high = max(most * (1 + BEYOND_EXTREMES), middle * (1 + ABOVE))
    return PlainRange(round(low), round(high))


class _Processes:
    """Some processes that train the same step."""

    def __init__(self, program: Program, batch: int, ops: int, has_loops: bool) -> None:
        self._program, self._batch = program, batch
        self._count = max(1, min(MOST_PROCESSES, OPS_IN_ALL_PROCESSES // max(1, ops)))
        self._warm_up = WARM_UP_WITH_LOOPS if has_loops else WARM_UP_STEPS
        self._steps = self._warm_up + (MEASURED_WITH_LOOPS if has_loops else MEASURED_STEPS)

    def typical_peak(self, executor: Executor, seed: int) -> float:
        """The median over the processes of each one's largest peak."""
        random = Random(seed)
        return median(self._largest_peak(executor, random) for _ in range(self._count))

    def _largest_peak(self, executor: Executor, random: Random) -> int:
        traces = run_overlapped(self._program, self._batch, (executor.run(random) for _ in range(self._steps)))
        first = next(traces)
        replay = Replay(self._program, first)
        peaks = [replay.step(trace).chunk_peak for trace in chain([first], traces)]
        return max(peaks[self._warm_up :])
