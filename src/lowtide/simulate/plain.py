"""Where the peak of a plain run falls: TensorFlow's own order, which differs from step to step and from run to run.

A fixed order has one peak. A plain run has one for each order that its threads happen upon, on an allocator that
remembers the steps before. And every run has habits of its own, because hash sets of addresses decide the order of some
edges (`lowtide.simulate.edges`): the same script may need a third more the next time. So: some processes of the
executor's model, each a few steps on the allocator's model, and of their peaks the largest, which is what a limit must
leave room for.

The range is for the largest peak of `RUNS` runs of `STEPS` steps. A single run may stay below it; in many thousand
steps one may go beyond it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from math import comb
from random import Random
from typing import NamedTuple

from lowtide.program import Program
from lowtide.simulate.executor import Executor
from lowtide.simulate.machine import run_overlapped
from lowtide.simulate.step import Replay
from lowtide.simulate.unroll import loop_backlog, ops_executed, unrolled

RUNS, STEPS = 5, 6

MOST_RUNS, FEWEST_RUNS, FEWEST_STEPS = 20, 2, 3
OPS_IN_ALL_RUNS = 80_000
"""More runs make a better estimate: as many as these allow, each of `STEPS` steps or, where a step is long, fewer."""

PLAYED_LESS = 0.02
"""How much lower the largest peak is when only a few steps of all are played."""

BELOW, ABOVE = 0.07, 0.0695
"""How far the largest peak may lie from the predicted one. What decides it is not known before the run: the machine's
speed and load, and what its hash sets do."""


class PlainRange(NamedTuple):
    """Chunk bytes, residents included: the level of `Timeline.chunk_peak`."""

    low: int
    high: int


def plain_range(program: Program, batch: int, seed: int = 0) -> PlainRange:
    """The range for the largest peak of a few runs of the step as plain TensorFlow runs it at `batch`.

    Stands for: train a few steps, look at the largest peak, and do that again in other processes. The same seed gives
    the same range. It is wider for a step whose loops are too long to be written out.
    """
    flat, twins = unrolled(program, batch)
    executor, random = Executor(flat, batch, twins), Random(seed)
    runs, steps = _affordable(ops_executed(program, batch))
    peaks = [_peak_of_run(flat, batch, executor, random, steps) for _ in range(runs)]
    expected = largest_expected(peaks, RUNS)
    if runs * steps < RUNS * STEPS:
        expected *= 1 + PLAYED_LESS
    backlog = loop_backlog(flat, batch)
    return PlainRange(round(expected * (1 - BELOW)), round((expected + backlog) * (1 + ABOVE)))


def _affordable(ops: int) -> tuple[int, int]:
    """Runs and steps of each."""
    in_all = OPS_IN_ALL_RUNS // max(1, ops)
    steps = max(FEWEST_STEPS, min(STEPS, in_all // RUNS))
    return max(FEWEST_RUNS, min(MOST_RUNS, in_all // steps)), steps


def _peak_of_run(program: Program, batch: int, executor: Executor, random: Random, steps: int) -> int:
    process = executor.process(random)
    traces = run_overlapped(program, batch, (process.step() for _ in range(steps)))
    first = next(traces)
    replay = Replay(program, first)
    return max(replay.step(trace).chunk_peak for trace in chain([first], traces))


def largest_expected(peaks: Sequence[int], count: int) -> float:
    """The largest of `count` of the peaks, on average over all choices; the largest of all when there are fewer."""
    ranked = sorted(peaks)
    if len(ranked) <= count:
        return ranked[-1]
    ways = comb(len(ranked), count)
    return sum(peak * comb(rank, count - 1) / ways for rank, peak in enumerate(ranked))
