"""What an op costs: the seconds it took where the step was tried out, flops and bytes otherwise.

`lowtide.simulate.executor.durations` knows flops and bytes. Kinds of ops that take more or less than these say are in a
table here, relative to a convolution: rounded ratios of measured to modelled time in the ordered steps of the
benchmark's ResNet50, U-Net and GPT, on two cores that had other work too. Kinds that these steps do not have stand
beside those that do the like. Only proportions matter to a planner.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum

from lowtide.program import Op, Program
from lowtide.simulate.executor import durations

_RATIOS = {
    **dict.fromkeys(("AddN", "RealDiv", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), 0.6),
    **dict.fromkeys(("Mean", "Sum", "Max", "Min", "Prod", "SquaredDifference"), 2.0),
    **dict.fromkeys(("BroadcastTo", "Slice", "StridedSlice"), 2.0),
    **dict.fromkeys(("Transpose", "SelectV2", "Select", "Erf", "Erfc", "Tanh", "Exp", "Softmax"), 2.5),
    **dict.fromkeys(("SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits"), 20.0),
    **dict.fromkeys(
        ("StatelessRandomUniformV2", "StatelessRandomNormalV2", "StatelessTruncatedNormalV2", "RandomUniform",
         "RandomStandardNormal", "TruncatedNormal"),
        20.0,
    ),
}  # fmt: skip


def op_seconds(program: Program, batch: int) -> Sequence[float]:
    """Seconds that each op takes at `batch`.

    A measured time is carried from its batch to this one in the proportion of the modelled times. An op that was not
    measured counts as modelled, in the measure of those that were.
    """
    modelled = _modelled(program, batch)
    if program.times is None:
        return modelled
    there = _modelled(program, program.times.batch)
    measured = [program.times.seconds.get(op.name) for op in program.ops]
    known = [(took, model) for took, model in zip(measured, there, strict=True) if took is not None]
    scale = fsum(took for took, _ in known) / fsum(model for _, model in known) if known else 1.0
    return [
        here * (scale if took is None else took / model)
        for took, model, here in zip(measured, there, modelled, strict=True)
    ]


def _modelled(program: Program, batch: int) -> list[float]:
    return [seconds * _ratio(op) for op, seconds in zip(program.ops, durations(program, batch), strict=True)]


def _ratio(op: Op) -> float:
    return _RATIOS.get(op.kind, 1.0)
