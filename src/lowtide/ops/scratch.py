"""Bytes an op needs while it runs beside its inputs and outputs, as a table.

Only what is worth counting: buffers that grow with the tensors. Some of it depends on the processor (oneDNN picks
its algorithm by instruction set); those rows are upper bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from lowtide.ops.einsum import Copies, copies
from lowtide.program import ITEM_BYTES, Op, Value

Scratch = Callable[[Op, Sequence[Value], Sequence[Value], int], int]
"""(op, inputs, outputs, batch) -> bytes."""

_CONVOLUTION = 12336
"""oneDNN's bookkeeping for a convolution, the same for all sizes that were measured."""


_ROW_OF_WINDOW = 8192
"""More of it for a convolution of one channel: this for each row of the window, twice, and once more."""


def _convolution(op: Op, given: Sequence[Value], made: Sequence[Value], batch: int) -> int:
    window = [dim.at(batch) for dim in given[1].shape or ()] if len(given) > 1 else []
    if len(window) == 4 and window[2] == 1 and window[0] > 1:
        return _CONVOLUTION + _ROW_OF_WINDOW * (2 * window[0] + 1)
    return _CONVOLUTION


def _one_a_row(op: Op, given: Sequence[Value], made: Sequence[Value], batch: int) -> int:
    """The largest logit of each row."""
    return made[0].bytes(batch)


def _matrix_products(op: Op, given: Sequence[Value], made: Sequence[Value], batch: int) -> int:
    """Bookkeeping, and for a transposed operand a copy of one matrix for each of two threads, in whole blocks."""
    copies = 0
    for value, side, blocks in zip(given[:2], ("adj_x", "adj_y"), _BLOCKS, strict=False):
        if op.attrs.get(side) and value.shape is not None:
            sides = zip(value.shape[-2:], blocks, strict=True)
            matrix = math.prod(-(-dim.at(batch) // block) * block for dim, block in sides)
            copies += 2 * matrix * ITEM_BYTES[value.dtype]
    return _PRODUCT + copies


_BLOCKS = ((16, 16), (64, 16))
"""oneDNN rounds the sides of a transposed operand up to these, on some processors; without, it is less."""


def _packed(op: Op, given: Sequence[Value], made: Sequence[Value], batch: int) -> int:
    return _EINSUM


def _for_the_product(op: Op, given: Sequence[Value], made: Sequence[Value], batch: int) -> tuple[int, ...]:
    """Copies of operands, and the product itself where that is not yet the result."""
    needed = copies(str(op.attrs.get("equation", ""))) or Copies((True,) * len(given), True)
    taken = [value.bytes(batch) for value, copied in zip(given, needed.operands, strict=True) if copied]
    return (*taken, made[0].bytes(batch)) if needed.product else tuple(taken)


_PRODUCT = 1664
_EINSUM = 16384

SCRATCH: Mapping[str, Scratch] = {
    "BatchMatMulV2": _matrix_products,
    "BatchMatMulV3": _matrix_products,
    "BatchMatMul": _matrix_products,
    **dict.fromkeys(("Conv2D", "_FusedConv2D", "Conv3D", "_FusedConv3D"), _convolution),
    "Einsum": _packed,
    "SparseSoftmaxCrossEntropyWithLogits": _one_a_row,
    "SoftmaxCrossEntropyWithLogits": _one_a_row,
}

SCRATCH_FIRST: Mapping[str, Callable[[Op, Sequence[Value], Sequence[Value], int], tuple[int, ...]]] = {
    "Einsum": _for_the_product,
}
"""(op, inputs, outputs, batch) -> bytes of the buffers that an op takes before its outputs and holds while it runs."""


# TensorFlow's own kernels run where oneDNN's do not: in the body of a loop or a branch, which its graph pass leaves
# alone, and for 16 bits on a processor that oneDNN does not compute these on.

_WORKING_SET = 30 << 20
"""Bytes that the columns of as many images as are worked on at once may take, with what they are multiplied by."""
_ONE_IMAGE_AT_A_TIME = 1 << 19
"""Bytes. An image with more has all threads to itself."""


def _columns(image: Value, filters: Value, batch: int) -> tuple[int, int]:
    """(bytes of one image's patches laid out as columns, elements of that and of what is multiplied with it)."""
    assert image.shape is not None
    assert filters.shape is not None
    *_, height, width, _ = (dim.at(batch) for dim in image.shape)
    *window, depth = (dim.at(batch) for dim in filters.shape)
    pixels, patch = height * width, math.prod(window)
    item = filters.bytes(batch) // max(1, patch * depth)
    return pixels * patch * item, pixels * patch + patch * depth + pixels * depth


def _images_at_once(work: int, item: int) -> int:
    return -(-(_WORKING_SET // item) // max(1, work))


def _filter_gradient_in_columns(op: Op, given: Sequence[Value], made: Sequence[Value], batch: int) -> int:
    if given[2].shape is None or made[0].shape is None:
        return 0
    columns, work = _columns(given[2], made[0], batch)
    return _images_at_once(work, _item(given[2], batch)) * columns


def _input_gradient_in_columns(op: Op, given: Sequence[Value], made: Sequence[Value], batch: int) -> int:
    if given[2].shape is None or given[1].shape is None:
        return 0
    columns, work = _columns(given[2], given[1], batch)
    item = _item(given[2], batch)
    alone = given[2].shape[0].at(batch) == 1 or work * item >= _ONE_IMAGE_AT_A_TIME
    return columns if alone else _images_at_once(work, item) * columns


def _item(value: Value, batch: int) -> int:
    return value.bytes(batch) // max(1, value.elements(batch))


def _nothing(op: Op, given: Sequence[Value], made: Sequence[Value], batch: int) -> int:
    return 0


def _in_floats(op: Op, given: Sequence[Value], made: Sequence[Value], batch: int) -> int:
    """A product in 16 bits: both operands and the result once more, in 32."""
    if given[0].dtype not in HALVES:
        return SCRATCH.get(op.kind, _nothing)(op, given, made, batch)
    return 2 * sum(value.bytes(batch) for value in (*given[:2], made[0]))


HALVES = frozenset({"half", "float16", "bfloat16"})

SCRATCH_OF_OWN_KERNELS: Mapping[str, Scratch] = {
    **dict.fromkeys(("Conv2D", "_FusedConv2D"), _nothing),
    "Conv2DBackpropFilter": _filter_gradient_in_columns,
    "Conv2DBackpropInput": _input_gradient_in_columns,
    **dict.fromkeys(("MatMul", "_FusedMatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _in_floats),
}
"""As `SCRATCH`, for TensorFlow's own kernels; what is not here is as oneDNN's."""
OWN_KERNEL = "own_kernel"
"""The attribute of an op outside all bodies whose kernel is TensorFlow's own."""
