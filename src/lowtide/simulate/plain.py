from __future__ import annotations

from random import Random
from typing import NamedTuple

from lowtide.program import Program
from lowtide.simulate.executor import Executor
from lowtide.simulate.machine import run_overlapped
from lowtide.simulate.step import Replay

RUNS = 8

class PlainRange(NamedTuple):
    low: int
    high: int


def plain_peaks(program: Program, batch: int, seed: int = 0, runs: int = RUNS) -> tuple[int, list[int], list[int]]:
    executor, random = Executor(program, batch), Random(seed)
    replay = None
    peaks = []; req=[]
    for trace in run_overlapped(program, batch, (executor.run(random) for _ in range(runs))):
        replay = replay or Replay(trace)
        p=replay.step(trace)
        peaks.append(p.chunk_peak); req.append(p.requested)
    assert replay is not None
    return replay.resident, peaks, req

def plain_range(program: Program, batch: int, seed: int = 0) -> PlainRange:
    _, peaks, _ = plain_peaks(program, batch, seed)
    return PlainRange(min(peaks), int(max(peaks) * 1.05))
