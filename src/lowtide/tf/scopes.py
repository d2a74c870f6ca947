"""Which layer opened which name scope of a graph, noted as Keras opens them.

A scope's name alone does not tell. Keras opens a layer's scope more than once, TensorFlow numbers every opening after
the first, and Keras numbers layers: `dense_1` is the second scope of `dense`, or the first of `dense_1`.
"""

from __future__ import annotations

import functools
import traceback
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from lowtide.tf import compat_watch, metrics, operations
from lowtide.tf.patches import Patch, patched

_OPENED: weakref.WeakKeyDictionary[Any, dict[str, str]] = weakref.WeakKeyDictionary()
"""By graph, for as long as it lives: scope to the layer's name."""


def opened_in(graph: Any) -> Mapping[str, str]:
    """The layer of each scope of a graph, as far as it was seen being opened."""
    return _OPENED.get(graph, {})


def noting(original: Callable[..., Any]) -> Callable[..., Any]:
    """In place of `__enter__` of Keras's name scopes: the same, noted."""

    @functools.wraps(original)
    def enter(scope: Any) -> Any:
        result = original(scope)
        if not tf.executing_eagerly() and isinstance(scope.caller, keras.Layer):
            opened = _OPENED.setdefault(tf.compat.v1.get_default_graph(), {})
            opened[tf.get_current_name_scope()] = scope.caller.name
        return result

    return enter


NOTING: tuple[Patch, ...] = (
    (compat_watch.NAME_SCOPE_CLASS, "__enter__", noting),
    *operations.NOTING,
    *metrics.NOTING,
)
"""What to patch, where a script builds its models and traces its own functions."""


def traced(function: Any, arguments: Any, options: Mapping[str, Any]) -> Any:
    """`function.get_concrete_function(...)`, its layers noted."""
    with patched(NOTING):
        return function.get_concrete_function(*arguments, **options)


def came_of_tracing(error: BaseException) -> bool:
    """Whether it was raised while `traced` called the user's function."""
    return any(frame.f_code is traced.__code__ for frame, _ in traceback.walk_tb(error.__traceback__))
