"""From the names that the user knows to everything they keep alive. Imports no TensorFlow.

One walk forward, breadth first, over what the user's globals, classes and running functions refer to. It costs a visit
for each object that the user's names reach, and no pass over all objects there are; of a thing with several holders it
finds the shortest way. What it does not reach, a library or C++ holds: `lowtide.tf.holders` looks for that backwards.
"""

from __future__ import annotations

import gc
import sys
import threading
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lowtide.tf.objects import of_classes
from lowtide.tf.places import is_users_file, locals_of

MOST = 300_000
"""Objects that are visited at most."""
_PLAIN = (str, bytes, int, float, complex, bool, type(None), type(Ellipsis), types.CodeType, types.ModuleType)
"""They refer to nothing that matters; a library's classes and functions neither."""


class Root(NamedTuple):
    """A scope with names where a chain may begin; lower `rank` is better."""

    rank: int
    scope: str
    names: dict[str, Any]
    file: str


class Step(NamedTuple):
    """How a thing was reached: from another, or (`holder` None) as a root's name."""

    holder: Any
    root: Root
    name: str


def roots() -> list[Root]:
    """The user's running functions and modules first; then a library's running functions."""
    found, theirs = [], []
    for stack in _stacks():
        users = [frame for frame in stack if is_users_file(frame.f_code.co_filename)]
        for frame in stack if users else ():
            code = frame.f_code
            if frame in users and code.co_name != "<module>":
                found.append(Root(0, f"local of {code.co_name}", locals_of(frame), code.co_filename))
            elif frame not in users and "lowtide" not in code.co_filename:
                theirs.append(Root(1, f"in a library's {code.co_name}", locals_of(frame), ""))
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if file and not name.startswith("lowtide") and is_users_file(str(Path(file).absolute())):
            found.append(Root(0, f"global of {Path(file).name}", _names(module), str(Path(file).absolute())))
    return found + theirs


def _suspended() -> Iterator[Root]:
    """The user's generators that wait to go on: a loop has no name for the one that it goes through."""
    for generator in of_classes(types.GeneratorType):
        frame = generator.gi_frame
        if frame is not None and not generator.gi_running and is_users_file(frame.f_code.co_filename):
            code = frame.f_code
            yield Root(0, f"local of {code.co_name}", locals_of(frame), code.co_filename)


def _stacks() -> list[list[types.FrameType]]:
    """The frames of each thread, the innermost first; of this thread without those that look.

    A frame that refers to itself would keep all that its callers know until the next collection of garbage.
    """
    tops = sys._current_frames()
    tops[threading.get_ident()] = sys._getframe(2)
    return [_upwards(top) for top in tops.values()]


def _upwards(frame: types.FrameType | None) -> list[types.FrameType]:
    found = []
    while frame is not None:
        found.append(frame)
        frame = frame.f_back
    return found


def library_roots() -> list[Root]:
    """Modules that are not the user's: where a chain ends when there is nothing better."""
    modules = [(name, module) for name, module in list(sys.modules.items()) if not name.startswith("lowtide")]
    return [Root(2, f"in {name}", _names(module), "") for name, module in modules]


def _names(module: types.ModuleType) -> dict[str, Any]:
    return {key: value for key, value in list(vars(module).items()) if not key.startswith("__")}


class Reach:
    """`steps[id(thing)]` says how each thing was reached; `leaves` are classes that are not looked into."""

    def __init__(self, leaves: tuple[type, ...] = ()) -> None:
        running, waiting = roots(), list(_suspended())
        self.roots = [*running, *waiting]
        self.steps: dict[int, Step] = {}
        self.arrays: list[Any] = []
        self._leaves = leaves
        self._kinds: dict[type, bool] = {}
        users, theirs = ([root for root in running if root.rank == rank] for rank in (0, 1))
        for some in (users, waiting, theirs):  # a generator that has a name is told by that
            self._walk(some)

    def _walk(self, begin: Sequence[Root]) -> None:
        level: list[Any] = []
        for root in begin:
            for name, thing in root.names.items():
                if id(thing) not in self.steps and self._matters(thing):
                    self._note(thing, Step(None, root, name), level)
        while level and len(self.steps) < MOST:
            following: list[Any] = []
            for holder in level:
                root = self.steps[id(holder)].root
                for part in parts_of(holder):
                    if id(part) not in self.steps and self._matters(part):
                        self._note(part, Step(holder, root, ""), following)
            level = following

    def _note(self, thing: Any, step: Step, level: list[Any]) -> None:
        self.steps[id(thing)] = step
        if isinstance(thing, np.ndarray):
            self.arrays.append(thing)
        if not isinstance(thing, self._leaves) and (not isinstance(thing, np.ndarray) or thing.dtype == object):
            level.append(thing)

    def _matters(self, thing: Any) -> bool:
        kind = type(thing)
        known = self._kinds.get(kind)
        if known is None:
            known = self._kinds[kind] = not issubclass(kind, _PLAIN)
        if not known:
            return False
        if isinstance(thing, type):
            return is_users_class(thing)
        return not isinstance(thing, types.FunctionType) or is_users_file(thing.__code__.co_filename)

    def path(self, thing: Any) -> list[Any]:
        """From the thing to what a root names; empty when nothing reaches it."""
        found: list[Any] = []
        at = thing
        while at is not None and id(at) in self.steps and len(found) < 100:
            found.append(at)
            at = self.steps[id(at)].holder
        return found


def is_users_class(cls: type) -> bool:
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return file is not None and is_users_file(str(Path(file).absolute()))


def parts_of(holder: Any) -> Iterator[Any]:
    """What a thing refers to, as far as it keeps it alive by itself: not a function's globals, not a frame's caller."""
    if isinstance(holder, types.FunctionType):
        yield from holder.__closure__ or ()
        yield from (holder.__defaults__, holder.__kwdefaults__, holder.__dict__)
    elif isinstance(holder, types.FrameType):
        yield from locals_of(holder).values()
    elif isinstance(holder, types.TracebackType):
        yield from (holder.tb_frame, holder.tb_next)
    elif isinstance(holder, np.ndarray):
        yield from holder.flat if holder.dtype == object else ()  # which the collector of garbage does not see
    else:
        yield from gc.get_referents(holder)
