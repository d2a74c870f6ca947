"""Bytes an op needs while it runs beside its inputs and outputs, as a table.

Only what is worth counting: buffers that grow with the tensors. Some of it depends on the processor (oneDNN picks
its algorithm by instruction set); those rows are upper bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lowtide.program import Op, Value

Scratch = Callable[[Op, Sequence[Value], Sequence[Value], int], int]
"""(op, inputs, outputs, batch) -> bytes."""

_CONVOLUTION = 12336
"""oneDNN's bookkeeping for a convolution, the same for all sizes that were measured."""


def _convolution(op: Op, given: Sequence[Value], made: Sequence[Value], batch: int) -> int:
    return _CONVOLUTION


def _one_a_row(op: Op, given: Sequence[Value], made: Sequence[Value], batch: int) -> int:
    """The largest logit of each row."""
    return made[0].bytes(batch)


SCRATCH: Mapping[str, Scratch] = {
    "Conv2D": _convolution,
    "_FusedConv2D": _convolution,
    "SparseSoftmaxCrossEntropyWithLogits": _one_a_row,
    "SoftmaxCrossEntropyWithLogits": _one_a_row,
}
