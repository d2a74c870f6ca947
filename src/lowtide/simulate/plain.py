"""Where the peak of a plain run falls: TensorFlow's own order, which differs from step to step.

A fixed order has one peak. A plain run has one for each order that its threads happen upon, on an allocator that
remembers the steps before: a few steps of the executor's model, replayed one after another on the allocator's model,
and of those after the warm-up the largest peak. That is what a limit must leave room for.

The range is for the largest peak of `MEASURED_STEPS` steps after `WARM_UP_STEPS`. A single step may stay below it, above
all where a loop sums gradients; in a run of many thousand steps one may go beyond it.
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
from lowtide.simulate.unroll import Unrolled, loop_backlog, unrolled

WARM_UP_STEPS, MEASURED_STEPS = 2, 5

BELOW, ABOVE = 0.07, 0.0695
"""How far the largest peak may lie from the predicted one. What decides it is not known before the run: the
machine's speed and load, and what the allocator has been through before the step."""

MOST_RUNS = 5
MOST_OPS_IN_ALL = 12_000
"""More runs make a better estimate: as many as these two allow, and at least one."""


class PlainRange(NamedTuple):
    """Chunk bytes, residents included: the level of `Timeline.chunk_peak`."""

    low: int
    high: int


def plain_range(program: Program, batch: int, seed: int = 0) -> PlainRange:
    """The range for the largest of a few peaks of the step as plain TensorFlow runs it at `batch`.

    Stands for: train a few steps, look at the largest peak, and do that again in other processes. The same seed gives
    the same range. A loop too long to be written out is counted as if in order, and the range widened by what it
    may leave waiting.
    """
    flat = unrolled(program, batch)
    runs = max(1, min(MOST_RUNS, MOST_OPS_IN_ALL // max(1, len(flat.program.ops))))
    random = Random(seed)
    peak = median(_largest_peak(flat, batch, random) for _ in range(runs))
    waiting = loop_backlog(program, batch) if flat.program is program else 0
    return PlainRange(round(peak * (1 - BELOW)), round((peak + waiting) * (1 + ABOVE)))


def _largest_peak(step: Unrolled, batch: int, random: Random) -> int:
    """Of one run: a new allocator, some steps to warm up, and the largest peak of those after."""
    executor = Executor(step.program, batch, late=step.summands)
    orders = (executor.run(random) for _ in range(WARM_UP_STEPS + MEASURED_STEPS))
    traces = run_overlapped(step.program, batch, orders)
    first = next(traces)
    replay = Replay(step.program, first)
    peaks = [replay.step(trace).chunk_peak for trace in chain([first], traces)]
    return max(peaks[WARM_UP_STEPS:])
