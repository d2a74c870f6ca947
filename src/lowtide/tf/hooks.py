"""Runs a script unchanged up to its first training step, and calls back there instead of training.

What counts as the first step: `fit` or `train_on_batch` of a Keras model; the first call of a tf.function that
computes gradients or assigns variables; the first `Session.run` whose fetches depend on a gradient. Training eagerly is
noticed too, and said.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, Protocol
from weakref import WeakKeyDictionary, WeakSet

import keras
import tensorflow as tf

from lowtide.errors import NotCapturable
from lowtide.program import Source
from lowtide.tf import compat
from lowtide.tf.graphs import fetched
from lowtide.tf.patches import Patch, patched
from lowtide.tf.phases import assigns
from lowtide.tf.places import calling_line, making_line
from lowtide.tf.scopes import NOTING
from lowtide.tf.shared import sharing_arrays


class OnStep(Protocol):
    """What to do when the training would begin. None of these returns."""

    def model(self, model: Any, data: Any) -> NoReturn: ...

    def function(self, function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> NoReturn: ...

    def session(self, session: Any, fetches: Any, feeds: Mapping[Any, Any]) -> NoReturn: ...


class LayerSources:
    """Remembers the line of the user's code that made each layer."""

    def __init__(self) -> None:
        self.lines: dict[str, Source] = {}

    def note(self, layer: Any) -> None:
        line = making_line(layer)
        if line is not None:
            self.lines[layer.name] = line


@contextlib.contextmanager
def stop_at_first_step(on_step: OnStep, sources: LayerSources) -> Iterator[None]:
    """Inside the block, whatever would train calls `on_step` instead."""
    busy = _Busy()
    patches: tuple[Patch, ...] = (
        (compat.TRAINER_CLASS, "make_train_function", functools.partial(_keras_train_function, on_step, busy)),
        (compat.TRAINER_CLASS, "fit", _without_callbacks),
        (compat.FUNCTION_CLASS, "__call__", functools.partial(_function_call, on_step, busy)),
        (compat.SESSION_CLASS, "run", functools.partial(_session_run, on_step)),
        (compat.OPTIMIZER_CLASS, "apply", functools.partial(_eager_update, busy)),
    )
    with patched((*patches, *_beside_training(busy, sources))):
        yield


def _beside_training(busy: _Busy, sources: LayerSources) -> tuple[Patch, ...]:
    """What has functions of its own that are not the training step, and where layers come from."""
    others = ("evaluate", "predict", "test_on_batch", "predict_on_batch")
    return (
        *((compat.TRAINER_CLASS, name, busy.ignoring) for name in others),
        (keras.Layer, "__init__", functools.partial(layer_init, sources)),
        *NOTING,
    )


class Replace(Protocol):
    """What takes the place of the training step."""

    def model(self, model: Any, data: Any) -> Callable[[Any], Any]: ...

    def function(self, function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> Callable[[Any], Any]: ...

    def session(self, session: Any, fetches: Any, feeds: Mapping[Any, Any]) -> NoReturn: ...


@contextlib.contextmanager
def replace_steps(replacement: Replace, sources: LayerSources) -> Iterator[None]:
    """Inside the block each training step that is met runs as `replacement` says, from its first call on."""
    busy = _Busy()
    patches: tuple[Patch, ...] = (
        (compat.TRAINER_CLASS, "make_train_function", functools.partial(_replaced_train_function, replacement, busy)),
        (compat.TRAINER_CLASS, "fit", sharing_arrays),
        (compat.FUNCTION_CLASS, "__call__", functools.partial(_replaced_call, replacement, busy)),
        (compat.SESSION_CLASS, "run", functools.partial(_session_run, replacement)),
        (compat.OPTIMIZER_CLASS, "apply", functools.partial(_eager_update, busy)),
    )
    with patched((*patches, *_beside_training(busy, sources))):
        yield


def _replaced_train_function(replacement: Replace, busy: _Busy, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def make(model: Any, force: bool = False) -> None:
        if model.train_function is not None and not force:
            return
        if _trains_nothing(model):
            _left_alone(model, busy, original, force)
            return
        planned: list[Callable[[Any], Any]] = []

        def step(data: Any) -> Any:
            with busy:
                if not planned:
                    planned.append(replacement.model(model, data))
                return planned[0](data)

        model.train_function = iterated(model, step)

    return make


def iterated(model: Any, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What Keras calls for each step of `fit`, made of a function of one batch."""

    def train_function(iterator: Any) -> Any:
        outputs = None
        for _ in range(model.steps_per_execution):
            try:
                data = next(iterator)
            except StopIteration:
                if outputs is None:
                    raise
                break
            outputs = step(tf.nest.map_structure(_none_for_optional, data))
        return outputs

    return train_function


def _none_for_optional(leaf: Any) -> Any:
    """Keras passes what a PyDataset leaves out as an empty Optional."""
    return None if isinstance(leaf, tf.experimental.Optional) else leaf


def _replaced_call(replacement: Replace, busy: _Busy, original: Callable[..., Any]) -> Callable[..., Any]:
    planned: WeakKeyDictionary[Any, Callable[[Any], Any]] = WeakKeyDictionary()
    others: WeakSet[Any] = WeakSet()

    @functools.wraps(original)
    def call(function: Any, *arguments: Any, **options: Any) -> Any:
        if busy.depth or function in others or not tf.executing_eagerly():
            return original(function, *arguments, **options)
        with busy:
            if function not in planned:
                if not trains(function.get_concrete_function(*arguments, **options).graph):
                    others.add(function)
                    return original(function, *arguments, **options)
                planned[function] = replacement.function(function, arguments, options)
            return planned[function]((arguments, options))

    return call


class _Busy(threading.local):
    """Whether this thread is inside something whose functions are not the training step."""

    depth = 0

    def ignoring(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original, updated=())
        def call(*arguments: Any, **options: Any) -> Any:
            with self:
                return original(*arguments, **options)

        return call

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1


def _keras_train_function(on_step: OnStep, busy: _Busy, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def make(model: Any, force: bool = False) -> None:
        if _trains_nothing(model):
            _left_alone(model, busy, original, force)
            return

        def instead_of_training(iterator: Any) -> NoReturn:
            with busy:
                on_step.model(model, next(iter(iterator)))

        model.train_function = instead_of_training

    return make


def _trains_nothing(model: Any) -> bool:
    """Whether all that a model has is frozen, as the discriminator of a GAN may be: its step is not the training."""
    own_step = type(model).train_step is not keras.Model.train_step
    return bool(model.built) and not own_step and bool(model.variables) and not model.trainable_variables


def _left_alone(model: Any, busy: _Busy, original: Callable[..., Any], force: bool) -> None:
    """Its step is Keras's own, and what it calls is nobody's step."""
    original(model, force=force)
    model.train_function = busy.ignoring(model.train_function)


def _without_callbacks(original: Callable[..., Any]) -> Callable[..., Any]:
    """`fit` with the user's callbacks left out: they would write logs and checkpoints of a training that is not."""

    @functools.wraps(original)
    def fit(model: Any, *arguments: Any, **options: Any) -> Any:
        names = ("x", "y", "batch_size", "epochs", "verbose", "callbacks")
        given = {**dict(zip(names, arguments, strict=False)), **options}
        rest = arguments[len(names) :]
        given.update(callbacks=None, verbose=0)
        if rest:
            return original(model, *(given.pop(name, None) for name in names), *rest, **given)
        return original(model, **given)

    return fit


def _function_call(on_step: OnStep, busy: _Busy, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(function: Any, *arguments: Any, **options: Any) -> Any:
        if busy.depth or not tf.executing_eagerly():
            return original(function, *arguments, **options)
        with busy:
            concrete = function.get_concrete_function(*arguments, **options)
            if trains(concrete.graph):
                on_step.function(function, arguments, options)
        return original(function, *arguments, **options)

    return call


def _session_run(on_step: OnStep | Replace, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def run(session: Any, fetches: Any, feed_dict: Any = None, *arguments: Any, **options: Any) -> Any:
        if depends_on_gradient(session.graph, fetches):
            on_step.session(session, fetches, feed_dict or {})
        return original(session, fetches, feed_dict, *arguments, **options)

    return run


def _eager_update(busy: _Busy, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def apply(optimizer: Any, *arguments: Any, **options: Any) -> Any:
        if tf.executing_eagerly() and not busy.depth:
            line = calling_line()
            where = f"{line.file}:{line.line}" if line else "the script"
            raise NotCapturable(
                f"{where}: the script trains eagerly, and there is no compiled step to capture; "
                "put the training step in a function decorated with @tf.function"
            )
        return original(optimizer, *arguments, **options)

    return apply


def layer_init(sources: LayerSources, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def init(self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        sources.note(self)

    init.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]  # Keras reads it to save layers
    return init


_GRADIENT_SCOPE = re.compile(r"(^|/)(gradient_tape|gradients(_\d+)?)/")


def trains(graph: Any) -> bool:
    """Whether a traced function, or one it calls, computes gradients or assigns variables."""
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(n for function in definition.library.function for n in function.node_def)]
    return any(assigns(node.op) or _GRADIENT_SCOPE.search(node.name) for node in nodes)


def depends_on_gradient(graph: Any, fetches: Any) -> bool:
    """Whether computing the fetches of a v1 graph computes a gradient."""
    frontier = [op for op in (_as_op(graph, f) for f in fetched(fetches)) if op is not None]
    seen = set()
    while frontier:
        op = frontier.pop()
        if op.name in seen:
            continue
        seen.add(op.name)
        if _GRADIENT_SCOPE.search(op.name):
            return True
        frontier.extend(t.op for t in op.inputs)
        frontier.extend(op.control_inputs)
    return False


def _as_op(graph: Any, fetch: Any) -> Any:
    try:
        element = graph.as_graph_element(fetch)
    except (TypeError, ValueError, KeyError):
        return None  # not of this graph: the real run will say so
    return element if isinstance(element, tf.Operation) else element.op
