"""What an op costs: the seconds it took where the step was tried out, and otherwise what flops, bytes and its kind say.

Only proportions matter to a planner.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

from lowtide.program import Program
from lowtide.simulate.executor import durations


def op_seconds(program: Program, batch: int) -> Sequence[float]:
    """Seconds that each op takes at `batch`.

    A measured time is carried from its batch to this one in the proportion of the modelled times. An op that was not
    measured counts as modelled, in the measure of those that were.
    """
    modelled = durations(program, batch)
    if program.times is None:
        return modelled
    there = durations(program, program.times.batch)
    measured = [program.times.seconds.get(op.name) for op in program.ops]
    known = [(took, model) for took, model in zip(measured, there, strict=True) if took is not None]
    scale = fsum(took for took, _ in known) / fsum(model for _, model in known) if known else 1.0
    return [
        here * (scale if took is None else took / model)
        for took, model, here in zip(measured, there, modelled, strict=True)
    ]

