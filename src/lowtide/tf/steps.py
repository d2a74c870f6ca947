"""Step boundaries, by cheap hooks: what the run calls again and again, from outside.

Only outermost calls count: what happens inside a step of `fit` is that step's. Some steps are one call (`fit`, a
tf.function, `Session.run`); eager ones have no call of their own, and go from the end of one update, gradient, model
call or `next` to the end of the following one. Once a loop of these is known, all of a round is told with its update.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lowtide.record import Detail
from lowtide.tf import compat, compat_watch
from lowtide.tf.device import DeviceCounter
from lowtide.tf.hooks import depends_on_gradient
from lowtide.tf.patches import Patch
from lowtide.tf.step_log import ONE_CALL, OnStep, StepLog
from lowtide.tf.watch import Watch


class _Inside(threading.local):
    depth = 0
    phase = "forward"
    calling = 0
    handed: tuple[Any, ...] = ()


class Steps:
    """The hooks, and the steps they have seen."""

    def __init__(self, watch: Watch, device: DeviceCounter, on_step: OnStep) -> None:
        self._watch, self._on_step = watch, on_step
        self._log = StepLog(watch, device, on_step)
        self._inside = _Inside()
        self._ops_inside = 0  # of graphs made while another was being traced
        self._trains: set[int] = set()
        self._most_given: dict[object, int] = {}
        self._running = self._one_calls = self._over_before = 0
        self.called: set[int] = set()
        """Identities of what was called since the last detailed step began, for their graphs."""
        self.on_session_graph: Callable[[Any], None] = lambda graph: None

    @property
    def phase(self) -> str:
        """forward, backward or update: what eager code of this thread is doing."""
        return self._inside.phase

    def patches(self) -> tuple[Patch, ...]:
        trainer = compat_watch.TRAINER_CLASS
        return (
            (trainer, "make_train_function", functools.partial(self._keras, "fit", "train_function")),
            (trainer, "make_test_function", functools.partial(self._keras, "evaluate", "test_function")),
            (trainer, "make_predict_function", functools.partial(self._keras, "predict", "predict_function")),
            (compat.FUNCTION_CLASS, "__call__", self._function),
            (compat.SESSION_CLASS, "run", self._session),
            (compat.OPTIMIZER_CLASS, "apply", functools.partial(self._eager, "update", "update")),
            (compat_watch.TAPE_CLASS, "gradient", functools.partial(self._eager, "gradient", "backward")),
            (compat_watch.TAPE_CLASS, "jacobian", functools.partial(self._eager, "gradient", "backward")),
            (compat_watch.ITERATOR_CLASS, "__next__", functools.partial(self._eager, "next", "forward")),
            (keras.Layer, "__call__", functools.partial(self._eager, "call", "forward")),
        )

    @property
    def inside(self) -> bool:
        """Whether this thread is in a step, or in something of Lowtide's own."""
        return bool(self._inside.depth)

    def between(self) -> bool:
        """Whether no step is running, nor has one ended since this was last asked."""
        before, self._over_before = self._over_before, self._log.over
        return not self._running and before == self._log.over

    def in_one_call(self) -> bool:
        """Whether a step runs that is one call, begin to end."""
        return bool(self._one_calls)

    def handed(self) -> set[int]:
        """Identities of the tensors that were handed to what this thread is calling."""
        return {id(leaf) for leaf in _leaves(self._inside.handed)}

    def add_stretch(self, detail: Detail) -> None:
        """Something was recorded in full that is no step."""
        self._log.add_stretch(detail)

    @property
    def calling(self) -> int:
        """The identity of what the script has called and is still running; 0 when nothing."""
        return self._inside.calling

    def note_tracing(self) -> None:
        """A graph is about to be made by what is running."""
        if self._inside.calling:
            self._on_step.tracing(self._inside.calling)

    def note_trace(self, trains: bool, ops: int) -> None:
        """A graph of so many ops was made by what is running: whether it trains."""
        if trains and self._inside.calling:
            self._trains.add(self._inside.calling)
        self._ops_inside += ops
        if tf.executing_eagerly():  # not while another is being traced that will call it
            if self._inside.calling:
                self._on_step.traced(self._inside.calling, self._ops_inside)
            self._ops_inside = 0

    @contextmanager
    def within(self) -> Iterator[None]:
        """Ours, or part of something larger: no steps in here."""
        self._inside.depth += 1
        try:
            yield
        finally:
            self._inside.depth -= 1

    def _counts_now(self) -> bool:
        return not self._inside.depth and self._watch.alive

    def _keras(self, kind: str, attribute: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def make(model: Any, *arguments: Any, **options: Any) -> Any:
            before = getattr(model, attribute, None)
            result = original(model, *arguments, **options)
            made = getattr(model, attribute)
            if made is not before and made is not None:
                setattr(model, attribute, self._keras_step(kind, model, made))
                result = getattr(model, attribute) if result is made else result
            return result

        return make

    def _keras_step(self, kind: str, model: Any, function: Callable[..., Any]) -> Callable[..., Any]:
        owner = weakref.ref(model)

        @functools.wraps(function)
        def step(*arguments: Any, **options: Any) -> Any:
            if not self._counts_now():
                return function(*arguments, **options)
            model = owner()
            repeats = int(model.steps_per_execution or 1) if model is not None and kind == "fit" else 1
            name, key = model.name if model is not None else "", id(function)
            if self._log.is_quick(key):
                return self._counted(kind, name, key, repeats, function, arguments, options)
            return self._step(kind, name, key, repeats, function, arguments, options)

        return step

    def _counted(
        self, kind: str, name: str, key: int, repeats: int, original: Callable[..., Any], arguments: Any, options: Any
    ) -> Any:  # fmt: skip
        """A quick step among many."""
        self._log.counted_begins(kind, name, key)
        inside = self._inside
        inside.depth += 1
        inside.calling = key
        try:
            result = original(*arguments, **options)
            self._log.counted_ends(repeats)
            return result
        finally:
            inside.depth -= 1
            inside.calling = 0

    def _function(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(function: Any, *arguments: Any, **options: Any) -> Any:
            if not self._counts_now() or not tf.executing_eagerly():
                return original(function, *arguments, **options)
            key = id(function)
            kind = "function" if key in self._trains else "call"
            name = getattr(function, "__name__", "function")
            quick = kind == "function" and self._log.is_quick(key)
            note = self._counted if quick and _given(arguments) <= self._most_given.get(key, 0) else self._step
            return note(kind, name, key, 1, original, (function, *arguments), options)

        return call

    def _session(self, original: Callable[..., Any]) -> Callable[..., Any]:
        kinds: dict[tuple[int, str], str] = {}

        @functools.wraps(original)
        def run(session: Any, fetches: Any, *arguments: Any, **options: Any) -> Any:
            if not self._counts_now():
                return original(session, fetches, *arguments, **options)
            key = (id(session), str(fetches)[:500])
            if key not in kinds:
                trains = self._watch.attempt("a session", lambda: depends_on_gradient(session.graph, fetches))
                kinds[key] = "session" if trains else "run"
            self.called.add(id(session.graph))
            self._watch.attempt("a session's graph", lambda: self.on_session_graph(session.graph))
            given = (session, fetches, *arguments)
            return self._step(kinds[key], "Session.run", key, 1, original, given, options, _traces(arguments, options))

        return run

    def _eager(self, kind: str, phase: str, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def call(owner: Any, *arguments: Any, **options: Any) -> Any:
            inside = self._inside
            if kind == "call" and (inside.depth or _is_symbolic(arguments)):
                return original(owner, *arguments, **options)
            if not self._watch.alive or not tf.executing_eagerly():
                return original(owner, *arguments, **options)
            outer, inside.phase = inside.phase, phase if phase != "forward" else inside.phase
            if inside.depth:
                try:
                    return original(owner, *arguments, **options)
                finally:
                    inside.phase = outer
            try:
                name = getattr(owner, "name", None) or type(owner).__name__
                if self._log.is_part(kind) and (kind != "call" or _given(arguments) <= self._most_given.get(kind, 0)):
                    return self._part(kind, str(name), original, (owner, *arguments), options)
                return self._step(kind, str(name), kind, 1, original, (owner, *arguments), options)
            finally:
                inside.phase = outer

        return call

    def _part(self, kind: str, name: str, original: Callable[..., Any], arguments: Any, options: Any) -> Any:
        """An eager call that leads to another, as ever."""
        self._log.account(kind)
        start = self._watch.now
        self._inside.depth += 1
        self._running += 1
        try:
            result = original(*arguments, **options)
            self._log.part_ends(kind, name)
            return result
        except (StopIteration, tf.errors.OutOfRangeError):
            raise
        except BaseException:
            self._log.ends(kind, name, kind, start, 1)
            raise
        finally:
            self._running -= 1
            self._inside.depth -= 1

    def _step(
        self, kind: str, name: str, key: object, repeats: int, original: Callable[..., Any], arguments: Any,
        options: Any, profiles: bool = False,
    ) -> Any:  # fmt: skip
        """`profiles`: the step starts TensorFlow's profiler itself. There is one, and it is the script's."""
        self._log.begins(kind)
        start = self._watch.now
        given = _given(arguments) if kind in ("function", "call") else 0
        if given > self._most_given.get(key, 0):
            self._most_given[key] = given
        inside = self._inside
        inside.handed = (arguments, options)
        if profiles:
            self._on_step.finish()
        else:
            self._on_step.begins(kind, key, given)
        inside.depth += 1
        self._running += 1
        one_call = kind in ONE_CALL
        self._one_calls += one_call
        if isinstance(key, int):
            inside.calling = key
            self.called.add(key)
        try:
            result = original(*arguments, **options)
        except (StopIteration, tf.errors.OutOfRangeError):
            self._on_step.ends(kind, key, None, None)
            raise
        except BaseException:
            self._log.ends(kind, name, key, start, repeats)
            raise
        else:
            if kind == "call" and key in self._trains:
                kind = "function"  # its first call has shown what it does
            self._log.ends(kind, name, key, start, repeats)
            return result
        finally:
            self._running -= 1
            self._one_calls -= one_call
            inside.depth -= 1
            inside.calling, inside.handed = 0, ()

    def finish(self) -> None:
        self._log.finish()


def _given(arguments: Any) -> int:
    """Bytes of the tensors and arrays that a call is handed."""
    total = 0
    for argument in arguments:
        kind = type(argument)
        if kind is compat_watch.EAGER_TENSOR_CLASS:
            total += argument.dtype.size * int(argument.shape.num_elements() or 0)
        elif isinstance(argument, np.ndarray):
            total += argument.nbytes
    return total


def _leaves(given: Any) -> Iterator[Any]:
    """What lists, tuples and dictionaries hold, however deep."""
    if isinstance(given, list | tuple | dict):
        for part in given.values() if isinstance(given, dict) else given:
            yield from _leaves(part)
    else:
        yield given


def _is_symbolic(arguments: Any) -> bool:
    """Whether a layer is called to build a model, not to compute."""
    while isinstance(arguments, list | tuple | dict) and arguments:
        arguments = next(iter(arguments.values() if isinstance(arguments, dict) else arguments))
    return isinstance(arguments, keras.KerasTensor)


def _traces(arguments: tuple[Any, ...], options: Mapping[str, Any]) -> bool:
    """Whether `Session.run(fetches, *arguments, **options)` has TensorFlow trace the run: its third argument says."""
    asked = options.get("options", arguments[1] if len(arguments) > 1 else None)
    return bool(getattr(asked, "trace_level", 0))
