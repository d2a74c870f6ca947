"""Lines of the user's code, and the lines where things were made. Imports no TensorFlow."""

from __future__ import annotations

import inspect
import runpy
import sys
import sysconfig
import weakref
from collections import Counter
from functools import cache
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from lowtide.program import Source

_PACKAGE = str(Path(__file__).resolve().parents[1])
_LAUNCHERS = sysconfig.get_paths()["scripts"]
CELL = "<ipython-input"
"""How the code of a notebook's cell is named, where it has no file."""
_LIBRARIES = tuple({sysconfig.get_paths()[k] for k in ("purelib", "platlib", "stdlib")} | {_PACKAGE})


@cache
def is_users_file(path: str) -> bool:
    """Whether a code file is neither a library's nor Lowtide's, nor what autograph made of the user's."""
    if path.startswith(CELL):
        return True
    if Path(path).parent == Path(_LAUNCHERS) and not Path(path).suffix:
        return False  # it starts a program that was installed: `ipython`, `pytest`
    return not path.startswith((*_LIBRARIES, "<")) and not Path(path).name.startswith("__autograph_generated_file")


def is_ours(path: str) -> bool:
    """Whether a code file is Lowtide's own."""
    return path.startswith(_PACKAGE)


def hide_our_frames(error: BaseException) -> None:
    """Have an error of the script's, and those that it came of, be shown as if Lowtide and runpy were not there."""
    part: BaseException | None = error
    seen: set[int] = set()
    while part is not None and id(part) not in seen:
        seen.add(id(part))
        part.__traceback__ = _without_ours(part.__traceback__)
        part = part.__cause__ or part.__context__


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    shown = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith((_PACKAGE, "<frozen runpy>", runpy.__file__)):
            shown.append(trace)
        trace = trace.tb_next
    following = None
    for part in reversed(shown):
        following = TracebackType(following, part.tb_frame, part.tb_lasti, part.tb_lineno)
    return following


def calling_line() -> Source | None:
    """The innermost line of the user's own code on the stack."""
    return line_of(sys._getframe(1))


def making_line(thing: Any) -> Source | None:
    """The line that makes a thing whose `__init__` is running, not one of the `__init__` methods it has."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (not is_users_file(frame.f_code.co_filename) or _initializes(frame, thing)):
        frame = frame.f_back
    return line_of(frame)


def _initializes(frame: FrameType, thing: Any) -> bool:
    code = frame.f_code
    return code.co_name == "__init__" and code.co_argcount > 0 and locals_of(frame).get(code.co_varnames[0]) is thing


def locals_of(frame: FrameType) -> dict[str, Any]:
    """A copy of a function's locals. Python up to 3.12 leaves one of its own in the frame, which would keep them.

    That one is emptied, unless the function has it from a call of `locals()`: then it is the user's.
    """
    of_frame = frame.f_locals
    found = dict(of_frame)
    ours = sys.getrefcount(of_frame) <= _OF_FRAME_ALONE
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED and isinstance(of_frame, dict) and ours:
        of_frame.clear()
    return found


_OF_FRAME_ALONE = 3
"""References to the dictionary: the frame's, our name's, and that of the call that counts them."""


def line_of(frame: FrameType | None) -> Source | None:
    while frame is not None:
        if is_users_file(frame.f_code.co_filename):
            return Source(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None


def users_stack() -> list[Source]:
    """The lines of the user's own code on the stack, outermost first."""
    found: list[Source] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_users_file(frame.f_code.co_filename):
            found.append(Source(frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return found[::-1]


class Births:
    """Where things were made, for as long as they live. Keyed by identity: tensors and variables have no hash."""

    def __init__(self) -> None:
        self._lines: dict[int, tuple[weakref.ref[Any], Any]] = {}
        self._forms: dict[Any, Any] = {}
        self.made: Counter[tuple[type, Source]] = Counter()
        """How many of each class each line has made, dead ones too."""

    def note(self, thing: Any, line: Any) -> None:
        key = id(thing)
        if isinstance(line, Source):
            self.made[type(thing), line] += 1
        try:
            self._lines[key] = (weakref.ref(thing, lambda _: self._lines.pop(key, None)), line)
        except TypeError:
            return  # it cannot be watched: its line stays unknown

    def of(self, thing: Any) -> Any:
        found = self._lines.get(id(thing))
        return found[1] if found is not None and found[0]() is thing else None

    def stand_for(self, form: Any, line: Any) -> None:
        """Things of this form whose making was not seen are taken to be from this line."""
        self._forms[form] = line

    def like(self, form: Any) -> Any:
        return self._forms.get(form)

    def alive(self) -> list[tuple[Any, Any]]:
        return [(thing, line) for ref, line in list(self._lines.values()) if (thing := ref()) is not None]
