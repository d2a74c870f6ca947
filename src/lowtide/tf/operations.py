"""The user's lines of Keras operations that are not layers: `x + y`, `keras.ops.softmax(x)` in a functional model.

Keras keeps such a call as an object and runs it when the model runs, far from the line that wrote it. So the line is
noted when the object is first called, with symbolic tensors, and given to what it makes whenever a graph is traced.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from lowtide.program import Source
from lowtide.tf.patches import Patch
from lowtide.tf.places import calling_line

_WRITTEN: weakref.WeakKeyDictionary[Any, Source] = weakref.WeakKeyDictionary()
"""By Keras operation: the line that wrote it."""

_LINES: weakref.WeakKeyDictionary[Any, dict[str, Source]] = weakref.WeakKeyDictionary()
"""By graph, for as long as it lives: an op's name to the line that wrote it."""


def operation_lines(graph: Any) -> Mapping[str, Source]:
    """The lines of ops that Keras operations made in a graph, as far as they were seen being written."""
    return _LINES.get(graph, {})


def _writing(original: Callable[..., Any]) -> Callable[..., Any]:
    """In place of `Operation.symbolic_call`: the same, its line noted."""

    @functools.wraps(original)
    def symbolic_call(operation: Any, *arguments: Any, **options: Any) -> Any:
        if not isinstance(operation, keras.Layer) and (line := calling_line()):
            _WRITTEN[operation] = line
        return original(operation, *arguments, **options)

    return symbolic_call


def _running(original: Callable[..., Any]) -> Callable[..., Any]:
    """In place of `Operation.__call__`: the same, the ops that it makes noted."""

    @functools.wraps(original)
    def call(operation: Any, *arguments: Any, **options: Any) -> Any:
        result = original(operation, *arguments, **options)
        if operation in _WRITTEN and not tf.executing_eagerly():
            _note(_WRITTEN[operation], _ops((arguments, options)), _ops(result))
        return result

    return call


def _ops(tensors: Any) -> list[Any]:
    return [tensor.op for tensor in tf.nest.flatten(tensors) if tf.is_symbolic_tensor(tensor)]


def _note(line: Source, given: list[Any], results: list[Any]) -> None:
    """The results are the line's, and all that was made on the way to them from what was given."""
    lines = _LINES.setdefault(tf.compat.v1.get_default_graph(), {})
    known = {op.name for op in given}
    while results:
        op = results.pop()
        if op.name not in known:
            known.add(op.name)
            lines[op.name] = line
            results.extend(tensor.op for tensor in op.inputs)


NOTING: tuple[Patch, ...] = (
    (keras.Operation, "symbolic_call", _writing),
    (keras.Operation, "__call__", _running),
)
"""What to patch, where a script builds and traces its own models."""
