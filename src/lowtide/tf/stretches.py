"""Eager code that is no step: no model, function, tape or dataset in sight, plain ops on tensors. A stretch of it is
recorded in full when the device reaches a new high there.

No hook sees such code, so the thread that samples does: it asks the main thread to open a window, and later to close
it. The main thread does so between two instructions of Python code, and not in Lowtide's own. What happens once is over
by then and has the sample's line; what a loop does again is caught with op, line and bytes.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from types import FrameType
from typing import Protocol

import tensorflow as tf

from lowtide.tf.places import is_ours, is_users_file
from lowtide.tf.watch import Watch

LEAST = 16 << 20
"""A device with less at its highest is not worth a look."""
MORE, LOW, AGAIN = 1.01, 0.7, 0.97
"""By so much more than ever before is a new high; so much of it is low, and so much the same high again."""
MOST = 4
"""Stretches in a run, at most."""
SHORTEST, LONGEST = 0.2, 3.0
"""Seconds that one takes: until the device was low and the high has come again, so that all of a loop was seen."""


class Records(Protocol):
    """Where stretches are recorded: `lowtide.tf.windows`."""

    @property
    def highest(self) -> int: ...

    def begin_stretch(self) -> bool: ...

    def end_stretch(self) -> None: ...

    @property
    def in_stretch(self) -> bool: ...


class Stretches:
    """Is told of every sample, in the thread that takes them."""

    def __init__(self, watch: Watch, records: Records, between_steps: Callable[[], bool]) -> None:
        """`between_steps`: whether no step is running, nor has one ended since the last sample."""
        self._watch, self._records, self._between_steps = watch, records, between_steps
        self._wanted = self._high = self._count = 0
        self._was_low = False
        self._since = 0.0

    def sampled(self, in_use: int, peak: int) -> None:
        """What the device has, and the most it had since the last sample."""
        records = self._records
        if records.in_stretch:
            age = self._watch.now - self._since
            if age > LONGEST or (age > SHORTEST and self._was_low and peak >= AGAIN * self._wanted):
                in_main_thread(self._end)
            self._was_low |= in_use <= LOW * self._wanted
            return
        self._high = max(self._high, records.highest)
        between = self._between_steps()
        if between and peak > max(LEAST, MORE * self._high) and self._count < MOST:
            self._wanted = peak
            in_main_thread(self._begin)
        elif not between:
            self._high = max(self._high, peak)  # steps have their own records

    def _begin(self) -> None:
        if self._records.in_stretch or not self._watch.alive or not is_users_turn() or not tf.executing_eagerly():
            return  # the next sample asks again
        self._was_low, self._since = False, self._watch.now
        if self._records.begin_stretch():
            self._count += 1
            self._high = max(self._high, self._wanted)

    def _end(self) -> None:
        if self._records.in_stretch and self._watch.alive and is_users_turn():
            self._records.end_stretch()


def is_users_turn() -> bool:
    """Whether this thread is in the user's code, or in what that has called: not in Lowtide's own, which has locks."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    while frame is not None:
        file = frame.f_code.co_filename
        if is_users_file(file):
            return True
        if is_ours(file):
            return False
        frame = frame.f_back
    return False


_CALL = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_waiting: list[Callable[[], None]] = []


def _run(_: int | None) -> int:
    while _waiting:
        _waiting.pop(0)()
    return 0


_run_waiting = _CALL(_run)


def in_main_thread(action: Callable[[], None]) -> None:
    """Have the main thread call `action` between two instructions of the Python code that it runs, soon."""
    if action not in _waiting:
        _waiting.append(action)
        ctypes.pythonapi.Py_AddPendingCall(_run_waiting, None)
