"""Small whole numbers that a graph computes of shapes or counters: the limit of a loop, half a batch. Runs nothing.

TensorFlow's shape inference knows them while it needs them for a shape, and tells no one. This is the same arithmetic,
on arrays of a few elements, as a table.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf


def computed(node: Any, given: Sequence[Any]) -> Any:
    """The value of a node whose inputs have the values `given`; None when one has none, or the op has no row."""
    rule = _ROWS.get(node.op)
    if rule is None or any(value is None for value in given):
        return None
    try:
        return np.asarray(rule(node, *given))
    except (TypeError, ValueError, IndexError, ZeroDivisionError):
        return None  # TensorFlow would refuse it too, or it is a case that the row does not cover


def _sliced(node: Any, source: Any, begin: Any, end: Any, strides: Any) -> Any:
    if _whole(node, "ellipsis_mask") or _whole(node, "new_axis_mask"):
        raise ValueError("a slice with an ellipsis or a new axis")
    index: list[Any] = []
    for axis, (first, last, stride) in enumerate(zip(begin, end, strides, strict=True)):
        bit = 1 << axis
        if _whole(node, "shrink_axis_mask") & bit:
            index.append(int(first))
            continue
        start = None if _whole(node, "begin_mask") & bit else int(first)
        stop = None if _whole(node, "end_mask") & bit else int(last)
        index.append(slice(start, stop, int(stride)))
    return np.asarray(source)[tuple(index)]


def _whole(node: Any, attribute: str) -> int:
    """Reading an attribute that a node lacks would give it one."""
    return int(node.attr[attribute].i) if attribute in node.attr else 0


def _two(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda node, a, b: function(np.asarray(a), np.asarray(b))


def _reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(node: Any, source: Any, axes: Any) -> Any:
        keep = "keep_dims" in node.attr and node.attr["keep_dims"].b
        array = np.asarray(source)
        return function(array, axis=tuple(np.atleast_1d(axes).tolist()), keepdims=keep).astype(array.dtype)

    return reduce


def _cast(node: Any, source: Any) -> Any:
    target = tf.as_dtype(node.attr["DstT"].type)
    if not (target.is_integer or target.is_bool):
        raise TypeError("not a whole number")
    return np.asarray(source).astype(target.as_numpy_dtype)


def _gathered(node: Any, source: Any, indices: Any, axis: Any) -> Any:
    return np.take(source, indices, axis=int(axis))


_ROWS: Mapping[str, Callable[..., Any]] = {
    "AddV2": _two(operator.add), "Add": _two(operator.add), "Sub": _two(operator.sub), "Mul": _two(operator.mul),
    "FloorDiv": _two(operator.floordiv), "FloorMod": _two(operator.mod),
    "Equal": _two(operator.eq), "NotEqual": _two(operator.ne), "Less": _two(operator.lt),
    "LessEqual": _two(operator.le), "Greater": _two(operator.gt), "GreaterEqual": _two(operator.ge),
    "LogicalAnd": _two(np.logical_and), "LogicalOr": _two(np.logical_or),
    "LogicalNot": lambda node, source: np.logical_not(source),
    "Maximum": _two(np.maximum), "Minimum": _two(np.minimum),
    "Prod": _reduced(np.prod), "Sum": _reduced(np.sum), "Max": _reduced(np.max), "Min": _reduced(np.min),
    "StridedSlice": _sliced,
    "Cast": _cast,
    "GatherV2": _gathered,
    "Identity": lambda node, source: source,
    "Neg": lambda node, source: -np.asarray(source),
    "Squeeze": lambda node, source: np.squeeze(source),
    "Reshape": lambda node, source, shape: np.reshape(source, shape),
    "ExpandDims": lambda node, source, axis: np.expand_dims(source, int(axis)),
    "Pack": lambda node, *parts: np.stack(parts, axis=_whole(node, "axis")),
    "ConcatV2": lambda node, *parts: np.concatenate(parts[:-1], axis=int(parts[-1])),
}  # fmt: skip
"""Squeeze drops all axes of one element: of shapes and counters there are no others to tell apart."""
