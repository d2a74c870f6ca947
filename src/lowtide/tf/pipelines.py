"""tf.data pipelines: what each stage has buffered, the line that made it, and large data handed to TensorFlow."""

from __future__ import annotations

import functools
import re
import weakref
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import tensorflow as tf

from lowtide.program import Source
from lowtide.record import Data, Site, Stage
from lowtide.tf import compat_watch
from lowtide.tf.padding import Padding
from lowtide.tf.patches import Patch
from lowtide.tf.places import Births, calling_line
from lowtide.tf.residents import Known
from lowtide.tf.watch import Watch

LARGE = 1 << 20
"""Data of less than this is not worth a row."""
CONVERTED = "_EagerConst"
"""The op that makes a tensor of an array."""
_VERSION = re.compile(r"(v\d+)$")
_KEEPERS = ("cache", "shuffle", "interleave", "prefetch", "map")
_NOISE = re.compile(r"parallel|impl$|memory|dataset|^_+")


class Pipelines:
    """Every dataset and iterator that the run makes."""

    def __init__(self, watch: Watch, births: Births) -> None:
        self._watch, self._births = watch, births
        self._iterators: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._made = 0
        self._seen: set[tuple[Any, ...]] = set()
        self._padding = Padding(watch, self._padded_at)

    def patches(self) -> tuple[Patch, ...]:
        trainer: Any = compat_watch.TRAINER_CLASS
        given = functools.partial(functools.partial, self._given)
        return (
            (compat_watch.DATASET_CLASS, "__init__", self._dataset_init),
            (compat_watch.ITERATOR_CLASS, "__init__", self._iterator_init),
            (compat_watch.DATASET_CLASS, "from_tensor_slices", given("from_tensor_slices", True)),
            (compat_watch.DATASET_CLASS, "from_tensors", given("from_tensors", True)),
            (tf, "constant", functools.partial(self._converted, "tf.constant")),
            (tf, "convert_to_tensor", functools.partial(self._converted, "tf.convert_to_tensor")),
            (trainer, "fit", given("fit", False)),
            (trainer, "evaluate", given("evaluate", False)),
            (trainer, "predict", given("predict", False)),
            *self._padding.patches(),
        )

    def _dataset_init(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def init(dataset: Any, *arguments: Any, **options: Any) -> None:
            self._births.note(dataset, calling_line())
            self._padding.expected |= _pads(dataset)
            original(dataset, *arguments, **options)

        return init

    def _padded_at(self, dataset: Any) -> Source | None:
        """The line of the stage that pads, in all that a dataset is made of."""
        return next((self._births.of(stage) for stage in _chain(dataset) if _pads(stage)), None)

    def _iterator_init(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def init(iterator: Any, *arguments: Any, **options: Any) -> None:
            original(iterator, *arguments, **options)
            if tf.executing_eagerly() and compat_watch.dataset_of(iterator) is not None:
                key = id(iterator)
                forget = weakref.ref(iterator, lambda _: self._iterators.pop(key, None))
                self._iterators[key] = (forget, self._made)
                self._made += 1

        return init

    def _given(self, what: str, static: bool, original: Callable[..., Any]) -> Any:
        """Note what is large among the arguments and, of `predict`, in what it returns."""

        @functools.wraps(original)
        def call(*arguments: Any, **options: Any) -> Any:
            if self._watch.alive:
                for argument in (*arguments[:3], *(options.get(n) for n in ("tensors", "x", "y"))):
                    self._note(what, argument)
            result = original(*arguments, **options)
            if what == "predict":
                self._note("returned by predict", result)
            return result

        return staticmethod(call) if static else call

    def _converted(self, what: str, original: Callable[..., Any]) -> Any:
        """Note a large array that becomes a tensor. Eager Keras converts a hundred scalars a step: those pass."""

        @functools.wraps(original)
        def call(*arguments: Any, **options: Any) -> Any:
            value = arguments[0] if arguments else options.get("value")
            if not isinstance(value, _HOLDING_DATA) or not self._watch.alive:
                return original(*arguments, **options)
            self._note(what, value)
            tensor = original(*arguments, **options)
            if isinstance(value, np.ndarray) and value.nbytes >= LARGE and _is_array(tensor):
                self._births.note(tensor, Site(CONVERTED, CONVERTED, "", calling_line(), "", "eager"))
            return tensor

        return call

    def _note(self, what: str, given: Any) -> None:
        if isinstance(given, dict | list | tuple):
            if len(given) <= 16:
                for part in given.values() if isinstance(given, dict) else given:
                    self._note(what, part)
            return
        if _is_array(given):
            self._note_array(what, given)

    def _note_array(self, what: str, given: Any) -> None:
        size = int(given.dtype.size if isinstance(given, tf.Tensor) else given.itemsize) * prod(given.shape)
        if size < LARGE:
            return
        source = calling_line()
        key = (what, source, tuple(given.shape))
        if key not in self._seen:
            self._seen.add(key)
            self._watch.keep(source)
            dtype = given.dtype.name if hasattr(given.dtype, "name") else str(given.dtype)
            row = Data(
                self._watch.now, self._watch.step, what, source, size, dtype, str(tuple(given.shape)), _mapped(given)
            )
            self._watch.writer.add([row])

    def iterators(self) -> list[tuple[Any, int]]:
        return [(it, number) for ref, number in list(self._iterators.values()) if (it := ref()) is not None]

    def stages(self) -> list[Stage]:
        """What each stage of each live iterator has buffered now."""
        rows = []
        for iterator, number in self.iterators():
            try:
                model = tf.data.experimental.get_model_proto(iterator)
            except (tf.errors.OpError, ValueError, AttributeError):
                continue  # without a model: autotuning is off, or it is not in the process
            lines = _lines(compat_watch.dataset_of(iterator), self._births)
            for node in model.nodes.values():
                parameters = {p.name: p.value for p in node.parameters}
                if node.buffered_bytes or parameters:
                    source = _line_of(node.name, lines)
                    self._watch.keep(source)
                    counts = max(0, node.buffered_bytes), max(0, node.buffered_elements)
                    rows.append(
                        Stage(self._watch.now, self._watch.step, number, node.name, source, *counts, parameters)
                    )
        return rows

    def element_sizes(self) -> dict[int, Known]:
        """Bytes of the tensors that stages may hold, with the stage's line: how its buffers are told from others."""
        found: dict[int, Known] = {}
        for iterator, _ in self.iterators():
            for dataset in sorted(_chain(compat_watch.dataset_of(iterator)), key=_fullness):
                site = Site(f"tf.data {_name(dataset)}", _name(dataset), "", self._births.of(dataset), "", "graph")
                for spec in tf.nest.flatten(dataset.element_spec):
                    shape = getattr(spec, "shape", None)
                    if shape is not None and shape.is_fully_defined():
                        size = prod(shape.as_list()) * spec.dtype.size
                        found.setdefault(size, Known(site, "inputs", str(tuple(shape.as_list())), spec.dtype.name))
        return found


_HOLDING_DATA = (np.ndarray, list, tuple, dict)


def _pads(dataset: Any) -> bool:
    return "PaddedBatch" in type(dataset).__name__


def _is_array(given: object) -> bool:
    return isinstance(given, np.ndarray) or type(given) is compat_watch.EAGER_TENSOR_CLASS


def _mapped(array: Any) -> bool:
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = getattr(array, "base", None)
    return False


def _chain(dataset: Any) -> list[Any]:
    """A dataset and all it is made of, the last stage first."""
    found: list[Any] = []
    waiting = [dataset]
    while waiting and len(found) < 200:
        one = waiting.pop(0)
        found.append(one)
        waiting.extend(compat_watch.stages_before(one))
    return found


def _fullness(dataset: Any) -> int:
    """Stages that keep elements come before those that pass them on, the ones that keep most first."""
    name = _plain(type(dataset).__name__)
    return next((rank for rank, kind in enumerate(_KEEPERS) if kind in name), len(_KEEPERS))


def _name(dataset: Any) -> str:
    return type(dataset).__name__.strip("_").removesuffix("Dataset")


def _plain(name: str) -> str:
    return _NOISE.sub("", _VERSION.sub("", name.lower()))


def _lines(dataset: Any, births: Births) -> list[tuple[str, Source | None]]:
    return [(_plain(type(one).__name__), births.of(one)) for one in _chain(dataset)]


def _line_of(stage: str, lines: list[tuple[str, Source | None]]) -> Source | None:
    """The line of the stage that the runtime's node is of: by name, each used once, the last stage first."""
    for at, (name, source) in enumerate(lines):
        if name and name == _plain(stage):
            del lines[at]
            return source
    return None
