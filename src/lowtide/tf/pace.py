"""When the thread that watches takes a look, and a wait that can be put off without waking it. Imports no TensorFlow.

Waking a thread of Python takes the interpreter from the script, and on a machine whose cores are busy milliseconds pass
before the script goes on: ten wakings a second that look at nothing take several percent of an eager loop. Steps have
records of their own, so while they come nobody needs to wake: each puts the next look off, and a lull brings it.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import time

FASTEST, SLOWEST, SAMPLES = 0.1, 2.0, 2000
"""Seconds between samples, first and in a long run; in between, the run's time so far divided by the last."""
LULL = 0.3
"""Seconds without a step after which steps no longer come."""
A_WHILE = 2.5
"""Seconds of steps after which they put samples off: a few quick ones may be followed by a line worth seeing."""


class Pace:
    """When samples are due, by the seconds of the run."""

    def __init__(self) -> None:
        self._sampled, self._stepped = 0.0, -math.inf
        self._stepping = 0.0

    def sampled(self, now: float) -> None:
        self._sampled = now

    def stepped(self, now: float) -> None:
        """A step has ended."""
        if now - self._stepped < LULL:
            self._stepping += now - self._stepped
        self._stepped = now

    def steps_come(self, now: float) -> bool:
        """Whether steps come, and have come for a while in all."""
        return self._stepping >= A_WHILE and now - self._stepped < LULL

    def due(self, now: float) -> float:
        """When the next sample is: in a lull of steps, and before long in any case."""
        usual = self._sampled + min(SLOWEST, max(FASTEST, now / SAMPLES))
        lull = self._stepped + LULL if self.steps_come(now) else usual
        return min(max(usual, lull), self._sampled + SLOWEST)


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Timer(ctypes.Structure):
    _fields_ = (("again", _Timespec), ("first", _Timespec))


_C = ctypes.PyDLL(None)
"""The C library; calls of it keep the interpreter, so that nobody else takes it meanwhile."""


class Alarm:
    """A timer of Linux's that one thread waits for and any thread sets: the one that waits need not wake for that.

    Stands for `Event.wait(seconds)` whose seconds others may change meanwhile. Without such timers, it sleeps.
    """

    def __init__(self) -> None:
        self._file = _C.timerfd_create(time.CLOCK_MONOTONIC, os.O_CLOEXEC) if hasattr(_C, "timerfd_create") else -1

    def set(self, seconds: float) -> None:
        """Have it ring so many seconds from now, and not before."""
        if self._file >= 0:
            whole, part = divmod(max(1, round(seconds * 1e9)), 10**9)
            _C.timerfd_settime(self._file, 0, ctypes.byref(_Timer(first=_Timespec(whole, part))), None)

    def wait(self, seconds: float) -> None:
        """Until it rings: in so many seconds, if nobody sets it meanwhile."""
        self.set(seconds)
        if self._file < 0:
            time.sleep(seconds)
            return
        try:
            os.read(self._file, 8)
        except OSError:  # the script has closed a file that is not its own
            self._file = -1

    def close(self) -> None:
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.close(self._file)
            self._file = -1
