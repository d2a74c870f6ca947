"""The lines of large tensors that eager code makes while no window is open.

No hook sees their making, since one that sees every op costs too much. So the thread that samples looks every few
milliseconds how many bytes the device has. When they rose while the main thread is inside TensorFlow, the chunks that
are new were made there, and the user's line that it is on is theirs: an op on that many bytes takes longer than the
time between two looks. A chunk that was not seen that way has no line.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType

import tensorflow as tf

from lowtide.program import Source
from lowtide.record import Site
from lowtide.tf.device import DeviceCounter
from lowtide.tf.places import line_of
from lowtide.tf.watch import Watch

LEAST = 4 << 20
"""Smaller chunks are made too quickly to be seen being made."""
FASTEST, SLOWEST, LOOKS = 0.005, 0.05, 4000
"""Seconds between two looks, at first and at last: what the run has lasted divided by so many, in between."""
STEPPING, WHILE_STEPPING = 1.0, 0.5
"""Seconds after a step in which another may be expected; seconds between two looks then, and during a step."""
SHARE, SAVED = 0.01, 0.25
"""Reading the allocator's map may take this part of the time, and so many seconds at once where it took less before."""

_TENSORFLOW = str(Path(tf.__file__).parent)

Sighted = dict[int, tuple[int, Source | None]]
"""By address: requested bytes, and the line."""


class Sightings:
    """Large chunks with the line that made them, as far as it was seen."""

    def __init__(self, watch: Watch, device: DeviceCounter, in_step: Callable[[], bool]) -> None:
        self._watch, self._device, self._in_step = watch, device, in_step
        self._main = threading.main_thread().ident or 0
        self._in_use = 0
        self._chunks: Sighted = {}
        self._missed = False
        self._budget, self._at = SAVED, time.perf_counter()
        self._steps, self._expected_until = 0, 0.0

    def wait(self, now: float) -> float:
        """Seconds until the next look."""
        if self._watch.steps != self._steps:
            self._steps, self._expected_until = self._watch.steps, now + STEPPING
        if now < self._expected_until or self._in_step():
            return WHILE_STEPPING
        return min(SLOWEST, max(FASTEST, now / LOOKS))

    def look(self) -> None:
        in_use = self._device.in_use()
        if in_use is None or (abs(in_use - self._in_use) < LEAST and not self._missed):
            return
        if self._watch.paused or self._in_step() or not self._may_read():
            self._missed = True  # what is new at the next look may be of any line
            return
        line = self._line()
        chunks = self._device.chunks() or []
        line = None if self._missed else line or self._line()  # an op may have begun since the bytes were read
        self._chunks = seen(self._chunks, {c.address: c.requested for c in chunks if c.in_use}, line)
        self._in_use, self._missed = in_use, False
        self._watch.keep(line)
        self._budget -= time.perf_counter() - self._at

    def _line(self) -> Source | None:
        return _making_line(sys._current_frames().get(self._main))

    def _may_read(self) -> bool:
        before, self._at = self._at, time.perf_counter()
        self._budget = min(SAVED, self._budget + SHARE * (self._at - before))
        return self._budget > 0

    def found(self) -> dict[int, tuple[int, Site]]:
        """By address: requested bytes, and who made them."""
        return {
            address: (size, Site("eager tensor", "", "", line, "", "eager"))
            for address, (size, line) in self._chunks.items()
            if line is not None
        }


def seen(before: Mapping[int, tuple[int, Source | None]], now: Mapping[int, int], line: Source | None) -> Sighted:
    """The large chunks of now: those that were there before with their lines, the new ones with this."""
    found: Sighted = {}
    for address, size in now.items():
        if size >= LEAST:
            known = before.get(address)
            found[address] = known if known is not None and known[0] == size else (size, line)
    return found


def _making_line(frame: FrameType | None) -> Source | None:
    """The user's line that a thread is on, while it is inside TensorFlow."""
    if frame is None or not frame.f_code.co_filename.startswith(_TENSORFLOW):
        return None
    return line_of(frame)
