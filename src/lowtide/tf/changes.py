"""Changes that Lowtide can make to a script by itself, to measure what they save: `lowtide run --verify`.

Installed in the watched process before the script does anything, by name: "stream", "watch", "batch". Each keeps what
the script computes the same but for the batch, and touches nothing that the finding was not about.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lowtide.tf import compat_watch
from lowtide.tf.patches import patched
from lowtide.tf.places import calling_line

_LASTING = contextlib.ExitStack()
"""Never closed: a change lasts as long as the process."""
PIECE = 256
"""Rows that are read at a time where an array is streamed."""


def make_change(name: str) -> None:
    """For the rest of this process."""
    _LASTING.enter_context(patched(CHANGES[name]()))


def _stream() -> list[tuple[Any, str, Any]]:
    return [
        (compat_watch.DATASET_CLASS, "from_tensor_slices", lambda original: staticmethod(_streamed_slices(original))),
        (compat_watch.TRAINER_CLASS, "fit", _streamed_fit),
        (compat_watch.TRAINER_CLASS, "predict", _streamed_fit),
    ]


def _streamed_slices(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def from_tensor_slices(tensors: Any, name: str | None = None) -> Any:
        if not isinstance(tensors, np.ndarray) or not len(tensors):
            return original(tensors, name)

        def pieces() -> Any:
            return (tensors[start : start + PIECE] for start in range(0, len(tensors), PIECE))

        spec = tf.TensorSpec((None, *tensors.shape[1:]), tensors.dtype)
        return tf.data.Dataset.from_generator(pieces, output_signature=spec).unbatch()

    return from_tensor_slices


class Pieces(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types
    """Arrays in batches, each converted when its turn comes."""

    def __init__(self, x: Any, y: Any, batch: int) -> None:
        super().__init__()
        self._x, self._y, self._batch = x, y, batch

    def __len__(self) -> int:
        return int(-(-len(self._x) // self._batch))

    def __getitem__(self, index: int) -> Any:
        rows = slice(index * self._batch, (index + 1) * self._batch)
        x = self._x[rows].astype("float32") if self._x.dtype == np.float64 else self._x[rows]
        return x if self._y is None else (x, self._y[rows])


def _streamed_fit(original: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def fit(*arguments: Any, **options: Any) -> Any:
        given = signature.bind(*arguments, **options).arguments
        x, y = given.get("x"), given.get("y")
        others = [given.get(name) for name in ("sample_weight", "class_weight", "validation_split")]
        if not isinstance(x, np.ndarray) or not isinstance(y, np.ndarray | None) or any(o is not None for o in others):
            return original(*arguments, **options)
        given.pop("y", None)
        given["x"] = Pieces(x, y, int(given.pop("batch_size", None) or 32))
        return original(**_spread(given))

    return fit


def _spread(given: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name, those that came as `**options` among them."""
    return {**{name: value for name, value in given.items() if name != "kwargs"}, **given.get("kwargs", {})}


def _watch() -> list[tuple[Any, str, Any]]:
    """A tape watches what the last one of its line was asked for, and nothing else."""
    asked: dict[Any, Any] = {}
    lines: dict[int, Any] = {}

    def init(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def made(tape: Any, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
            lines[id(tape)] = line = calling_line()
            original(tape, persistent, watch_accessed_variables and line not in asked)

        return made

    def enter(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def entered(tape: Any) -> Any:
            result = original(tape)
            for source in asked.get(lines.get(id(tape)), ()):
                tape.watch(source)
            return result

        return entered

    def gradient(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def taken(tape: Any, target: Any, sources: Any, *arguments: Any, **options: Any) -> Any:
            if tf.executing_eagerly():
                asked[lines.get(id(tape))] = [s for s in tf.nest.flatten(sources) if hasattr(s, "assign")]
            return original(tape, target, sources, *arguments, **options)

        return taken

    tape = compat_watch.TAPE_CLASS
    return [(tape, "__init__", init), (tape, "__enter__", enter), (tape, "gradient", gradient)]


def _batch() -> list[tuple[Any, str, Any]]:
    """Half the batch, where `fit` cuts it."""

    def halved(original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def fit(*arguments: Any, **options: Any) -> Any:
            given = signature.bind(*arguments, **options).arguments
            x = given.get("x")
            if isinstance(x, tf.data.Dataset):
                given["x"] = x.unbatch().batch(_rows(x) // 2 or 1)
            else:
                given["batch_size"] = max(1, (given.get("batch_size") or 32) // 2)
            if given.get("steps_per_epoch"):
                given["steps_per_epoch"] *= 2
            return original(**_spread(given))

        return fit

    return [(compat_watch.TRAINER_CLASS, "fit", halved)]


def _rows(dataset: Any) -> int:
    first = next(iter(dataset.take(1)))
    return int(tf.nest.flatten(first)[0].shape[0])


CHANGES: dict[str, Callable[[], list[tuple[Any, str, Any]]]] = {"stream": _stream, "watch": _watch, "batch": _batch}
