"""The user's lines of Keras metrics. They are updated inside `fit`, far from the line that made them."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import keras

from lowtide.program import Source
from lowtide.tf.patches import Patch
from lowtide.tf.places import is_users_file, making_line

_MADE: dict[str, set[Source]] = {}
"""By the file that says how a metric is updated: the lines that made such metrics."""


_LINES: weakref.WeakKeyDictionary[Any, Source] = weakref.WeakKeyDictionary()


def line_of_metric(metric: Any) -> Source | None:
    """The line that made this very metric, for eager code, where it is at hand."""
    return _LINES.get(metric) if isinstance(metric, keras.Metric) else None


def metric_line(frames: Sequence[Any]) -> Source | None:
    """The line that made the metric whose update made an op, from the frames that did, outermost first.

    None where the update is the user's own code, and where several lines made metrics of its kind.
    """
    for frame in reversed(frames):
        if is_users_file(frame.filename):
            return None
        lines = _MADE.get(frame.filename, ()) if frame.name == "update_state" else ()
        if len(lines) == 1:
            return next(iter(lines))
    return None


def _noting(original: Callable[..., Any]) -> Callable[..., Any]:
    """In place of `Metric.__init__`: the same, its line noted."""

    @functools.wraps(original)
    def init(metric: Any, *arguments: Any, **options: Any) -> None:
        code = getattr(type(metric).update_state, "__code__", None)
        line = making_line(metric)
        if code is not None and line is not None:
            _MADE.setdefault(code.co_filename, set()).add(line)
        original(metric, *arguments, **options)
        if line is not None:
            _LINES[metric] = line

    init.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]  # Keras reads it
    return init


NOTING: tuple[Patch, ...] = ((keras.Metric, "__init__", _noting),)
"""What to patch, where a script makes its metrics."""
