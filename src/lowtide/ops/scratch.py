"""Bytes an op needs while it runs beside its inputs and outputs, as a table.

Only what is worth counting: buffers that grow with the tensors. Some of it depends on the processor (oneDNN picks
its algorithm by instruction set); those rows are upper bounds.
"""

from __future__ import annotations

import math
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


def _matrix_products(op: Op, given: Sequence[Value], made: Sequence[Value], batch: int) -> int:
    """Bookkeeping, and for a transposed operand a copy of one matrix for each of two threads."""
    copies = 0
    for value, transposed in zip(given[:2], (op.attrs.get("adj_x"), op.attrs.get("adj_y")), strict=False):
        if transposed and value.shape is not None:
            matrices = math.prod(dim.at(batch) for dim in value.shape[:-2])
            copies += 2 * value.bytes(batch) // max(matrices, 1)
    return _PRODUCT + copies


def _transposed_operands(op: Op, given: Sequence[Value], made: Sequence[Value], batch: int) -> int:
    """Copies of the operands with their axes in the order of a matrix product."""
    return _EINSUM + sum(value.bytes(batch) for value in given)


_PRODUCT = 1664
_EINSUM = 16384

SCRATCH: Mapping[str, Scratch] = {
    "BatchMatMulV2": _matrix_products,
    "BatchMatMulV3": _matrix_products,
    "BatchMatMul": _matrix_products,
    **dict.fromkeys(("Conv2D", "_FusedConv2D", "Conv3D", "_FusedConv3D"), _convolution),
    "Einsum": _transposed_operands,
    "SparseSoftmaxCrossEntropyWithLogits": _one_a_row,
    "SoftmaxCrossEntropyWithLogits": _one_a_row,
}
