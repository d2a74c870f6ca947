"""Where the peak of a plain run falls: TensorFlow's own order, which differs from step to step and from run to run.

A fixed order has one peak. A plain run has one for each order that its threads happen upon, on an allocator that
remembers the steps before. And every run has habits of its own, because hash sets of addresses decide the order of some
edges (`lowtide.simulate.edges`): the same script may need a third more the next time. So: some processes of the
executor's model, each a few steps on the allocator's model, and of each the largest peak after the warm-up.

The range is for the largest peak of a few runs, each of `MEASURED_STEPS` steps after `WARM_UP_STEPS`. It lies around
the run that needs most of ten: another run of the same script may have other habits and stay below it, some by a third,
and in many thousand steps one may go beyond it.
"""

from __future__ import annotations

from itertools import chain
from random import Random
from statistics import median, quantiles
from typing import NamedTuple

from lowtide.program import Program
from lowtide.simulate.branches import has_choice
from lowtide.simulate.executor import Executor
from lowtide.simulate.machine import run_overlapped
from lowtide.simulate.replay import Replay
from lowtide.simulate.unroll import loop_backlog, ops_executed, unrolled

WARM_UP_STEPS, MEASURED_STEPS = 2, 5

WARM_UP_IF_LONG, MEASURED_IF_LONG = 1, 2
LONG = 12_000
"""A step of so many ops is played fewer times: so many small tensors that little changes from one to the next."""

MOST_RUNS = 20
OPS_IN_ALL_RUNS = 80_000
"""More runs make a better estimate: as many as these two allow, and at least one."""

BELOW, ABOVE = 0.06, 0.081
"""How far the largest peak may lie from that of a run which needs much. What decides it is not known before the run:
the machine's speed and load, and what its hash sets do."""
MUCH, USUALLY_MORE = 0.9, 0.033
"""A run that needs much needs more than this part of all; by so much more than the median, where few were played."""
ENOUGH_RUNS = 10


class PlainRange(NamedTuple):
    """Chunk bytes, residents included: the level of `Timeline.chunk_peak`."""

    low: int
    high: int


def plain_range(program: Program, batch: int, seed: int = 0) -> PlainRange:
    """The range for the largest of a few peaks of the step as plain TensorFlow runs it at `batch`.

    Stands for: train a few steps, look at the largest peak, and do that again in other processes. The same seed gives
    the same range. It is wider for a step whose loops are too long to be written out. Where a branch is known only when
    it runs, the step is played with either, and what needs more counts.
    """
    ways = (True, False) if has_choice(program, batch) else (True,)
    return max(_range_of(program, batch, seed, largest) for largest in ways)


def _range_of(program: Program, batch: int, seed: int, largest: bool) -> PlainRange:
    flat, twins = unrolled(program, batch, largest)
    executor, random = Executor(flat, batch, twins), Random(seed)
    ops = ops_executed(program, batch)
    warm_up, measured = (WARM_UP_IF_LONG, MEASURED_IF_LONG) if ops > LONG else (WARM_UP_STEPS, MEASURED_STEPS)
    runs = max(1, min(MOST_RUNS, OPS_IN_ALL_RUNS // max(1, ops * (warm_up + measured))))
    peak = _needs_much([_peak_of_run(flat, batch, executor, random, warm_up, measured) for _ in range(runs)])
    backlog = loop_backlog(flat, batch)
    return PlainRange(round(peak * (1 - BELOW)), round((peak + backlog) * (1 + ABOVE)))


def _needs_much(peaks: list[int]) -> float:
    """The peak of a run that needs much: as they were played, and as it usually is where there are few."""
    usual = median(peaks) * (1 + USUALLY_MORE)
    if len(peaks) == 1:
        return usual
    played = quantiles(peaks, n=round(1 / (1 - MUCH)), method="inclusive")[-1]
    trust = min(1.0, len(peaks) / ENOUGH_RUNS)
    return trust * played + (1 - trust) * usual


def _peak_of_run(program: Program, batch: int, executor: Executor, random: Random, warm_up: int, measured: int) -> int:
    process = executor.process(random)
    traces = run_overlapped(program, batch, (process.step() for _ in range(warm_up + measured)))
    first = next(traces)
    replay = Replay(program, first)
    peaks = [replay.step(trace).chunk_peak for trace in chain([first], traces)]
    return max(peaks[warm_up:])
