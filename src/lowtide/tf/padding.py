"""How much of a padded batch is padding: `padded_batch`, and `RaggedTensor.to_tensor` called eagerly.

What a padded stage gives is looked at when Python takes it from an iterator, each time that it is larger than before;
batches that stay inside a graph (`fit`) are not seen.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from lowtide.program import Source
from lowtide.record import Data
from lowtide.tf import compat_watch
from lowtide.tf.patches import Patch
from lowtide.tf.places import calling_line
from lowtide.tf.watch import Watch

LARGE = 1 << 20
"""Batches of less than this are not worth a row."""
ROWS = 128
"""Rows of a batch that are looked at."""
MORE = 1.2
"""By so much larger than the last that was looked at."""


class Padding:
    """Watches batches as they come."""

    def __init__(self, watch: Watch, padded_at: Callable[[Any], Source | None]) -> None:
        self._watch, self._padded_at = watch, padded_at
        self._seen: dict[Source | None, int] = {}
        self.expected = False
        """Whether any dataset pads: until one does, nothing is looked at."""

    def patches(self) -> tuple[Patch, ...]:
        return (
            (compat_watch.ITERATOR_CLASS, "__next__", self._taken),
            (tf.RaggedTensor, "to_tensor", self._made_dense),
        )

    def _taken(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def take(iterator: Any) -> Any:
            element = original(iterator)
            if self.expected and self._watch.alive and tf.executing_eagerly():
                self._watch.attempt("padding", lambda: self._look(iterator, element))
            return element

        return take

    def _look(self, iterator: Any, element: Any) -> None:
        parts = [part for part in tf.nest.flatten(element) if type(part) is compat_watch.EAGER_TENSOR_CLASS]
        largest: Any = max(parts, key=_size, default=None)
        if largest is None or _size(largest) < LARGE:
            return
        line = self._padded_at(compat_watch.dataset_of(iterator))
        if line is not None and largest.shape.rank and largest.shape.rank > 1 and self._is_news(line, _size(largest)):
            self._note("padded_batch", line, largest, round(_size(largest) * filled_part(largest)))

    def _made_dense(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def to_tensor(ragged: Any, *arguments: Any, **options: Any) -> Any:
            result = original(ragged, *arguments, **options)
            if type(result) is compat_watch.EAGER_TENSOR_CLASS and _size(result) >= LARGE and self._watch.alive:
                line = calling_line()
                if self._is_news(line, _size(result)):
                    self._note("to_tensor", line, result, min(_size(result), _size(ragged.flat_values)))
            return result

        return to_tensor

    def _is_news(self, line: Source | None, size: int) -> bool:
        if size <= MORE * self._seen.get(line, 0):
            return False
        self._seen[line] = size
        return True

    def _note(self, what: str, line: Source | None, batch: Any, filled: int) -> None:
        watch = self._watch
        watch.keep(line)
        row = Data(
            watch.now, watch.step, what, line, _size(batch), batch.dtype.name, str(tuple(batch.shape)), False, filled
        )
        watch.writer.add([row])


def _size(tensor: Any) -> int:
    return int(tensor.shape.num_elements() or 0) * int(tensor.dtype.size or 0)


def filled_part(batch: Any) -> float:
    """The part of a batch before the zeros that its rows end in, along the second dimension; of a sample of its rows.

    Zeros are what `padded_batch` pads with unless told otherwise; padding with anything else is taken for data.
    """
    rows = np.asarray(memoryview(batch))
    chosen = rows[:: max(1, len(rows) // ROWS)]
    length = rows.shape[1]
    used = 0
    for row in chosen:
        full = np.flatnonzero(row.reshape(length, -1).any(axis=1))
        used += int(full[-1]) + 1 if len(full) else 0
    return float(used / max(1, len(chosen) * length))
