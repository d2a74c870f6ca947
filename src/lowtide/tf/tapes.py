"""Gradient tapes of eager code: where they are made, how long they record, and whether they are let go."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from lowtide.program import Source
from lowtide.record import Tape
from lowtide.tf import compat_watch
from lowtide.tf.patches import Patch
from lowtide.tf.places import Births, calling_line
from lowtide.tf.watch import Watch


class _Line:
    """All tapes of one line and kind."""

    def __init__(self) -> None:
        self.made = self.alive = self.most_alive = self.most_steps = self.gradients = self.inside = 0
        self.watched = self.used = 0
        self.longest = 0.0


class Tapes:
    """Counts tapes by the line that makes them."""

    def __init__(self, watch: Watch, made: Births) -> None:
        """`made`: where the lines of all things are noted that a census counts."""
        self._watch, self._made = watch, made
        self._lines: dict[tuple[Source | None, bool, bool], _Line] = {}
        self._began: dict[int, tuple[float, int]] = {}
        self._asked: weakref.WeakKeyDictionary[Any, set[int]] = weakref.WeakKeyDictionary()
        """What variables each tape was asked for: a persistent one may be asked more than once."""
        self.births = Births()

    def patches(self) -> tuple[Patch, ...]:
        tape = compat_watch.TAPE_CLASS
        return (
            (tape, "__init__", self._init),
            (tape, "__enter__", self._enter),
            (tape, "__exit__", self._exit),
            (tape, "gradient", self._gradient),
            (tape, "jacobian", self._gradient),
            (tape, "batch_jacobian", self._gradient),
        )

    def alive(self) -> int:
        return len(self.births.alive())

    def _init(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def init(tape: Any, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
            original(tape, persistent, watch_accessed_variables)
            if self._watch.alive and tf.executing_eagerly():
                line = calling_line()
                key = (line, bool(persistent), bool(watch_accessed_variables))
                self._lines.setdefault(key, _Line()).made += 1
                self.births.note(tape, key)
                self._made.note(tape, line)

        return init

    def _enter(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def enter(tape: Any) -> Any:
            self._began[id(tape)] = (self._watch.now, self._watch.steps)
            return original(tape)

        return enter

    def _exit(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def leave(tape: Any, *arguments: Any) -> Any:
            began = self._began.pop(id(tape), None)
            line = self._line(tape)
            if began is not None and line is not None:
                self._stretch(line, began)
            return original(tape, *arguments)

        return leave

    def _line(self, tape: Any) -> _Line | None:
        key = self.births.of(tape)
        return None if key is None else self._lines.get(key)

    def _stretch(self, line: _Line, began: tuple[float, int]) -> None:
        line.longest = max(line.longest, self._watch.now - began[0])
        line.most_steps = max(line.most_steps, self._watch.steps - began[1])

    def _gradient(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def gradient(tape: Any, *arguments: Any, **options: Any) -> Any:
            line = self._line(tape)
            if line is not None:
                line.gradients += 1
                line.inside += compat_watch.is_recording(tape)
                line.watched = max(line.watched, len(tape.watched_variables()))
                sources = arguments[1] if len(arguments) > 1 else options.get("sources")
                asked = self._asked.setdefault(tape, set())
                variables = (one for one in tf.nest.flatten(sources) if isinstance(one, tf.Variable | keras.Variable))
                asked.update(map(id, variables))
                line.used = max(line.used, len(asked))
            return original(tape, *arguments, **options)

        return gradient

    def record(self) -> None:
        """Write the counts as they stand."""
        alive: dict[Any, int] = {}
        for tape, key in self.births.alive():
            alive[key] = alive.get(key, 0) + 1
            if id(tape) in self._began:
                self._stretch(self._lines[key], self._began[id(tape)])
        rows = []
        for (source, persistent, watches), line in self._lines.items():
            line.alive = alive.get((source, persistent, watches), 0)
            line.most_alive = max(line.most_alive, line.alive)
            self._watch.keep(source)
            counts = line.made, line.alive, line.most_alive, line.longest
            rows.append(
                Tape(
                    source, persistent, watches, *counts, line.most_steps, line.gradients, line.inside,
                    line.watched, line.used,
                )
            )
        if rows:
            self._watch.writer.replace_tapes(rows)
