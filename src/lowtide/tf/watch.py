"""Watches a run from inside: a clock, a thread that samples, and what hooks report. Imports no TensorFlow.

A script that never touches TensorFlow is watched too. When TensorFlow has been imported, `lowtide.tf.attach` adds what
only it can tell: steps, device bytes, detailed steps, traces, pipelines. Nothing here may disturb the script: what
cannot be recorded becomes a note.
"""

from __future__ import annotations

import contextlib
import linecache
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lowtide.program import Source
from lowtide.record import HOST_PARTS, HostSplit, Refusal, Sample, Step, Writer
from lowtide.record.host import ProcessMemory, available_bytes, cgroup_bytes, fitted, heap_reader
from lowtide.record.types import INSIDE
from lowtide.tf.pace import Alarm, Pace
from lowtide.tf.places import CELL, line_of
from lowtide.tf.tracers import traced_bytes, traced_lines

FLUSH_SECONDS = 0.5
SLOW_SECONDS = 1.0
SLOW_SHARE = 0.005
"""Slow readings may take this part of the run's time."""


@dataclass(frozen=True)
class Options:
    """What `lowtide run` was asked for."""

    detail_steps: int = 2
    host: str = "off"


class Attached(Protocol):
    """What TensorFlow adds to the samples."""

    def device(self) -> tuple[int, int, int | None] | None:
        """In use, the most since the last call, reserved."""

    def slow(self, now: float) -> dict[str, Any]:
        """Fields of a Sample that cost more to know."""

    def host_parts(self, found: dict[str, Any]) -> dict[str, int]:
        """Parts of RSS, by their names in `HOST_PARTS`, that only TensorFlow knows of."""

    def script_over(self) -> None:
        """The script's own code has run to its end; threads and `atexit` functions may follow."""

    def finish(self) -> None:
        """The last things to record, when all is over."""


class Looks(Protocol):
    """What the thread that samples looks at besides, more often than it samples."""

    def wait(self, now: float) -> float:
        """Seconds until the next look."""

    def look(self) -> None: ...


def _text(file: str) -> str:
    """What is in a file, or in a notebook's cell."""
    return "".join(linecache.getlines(file)) if file.startswith(CELL) else Path(file).read_text()


class Watch:
    """One run being watched."""

    def __init__(self, writer: Writer, began: float, options: Options) -> None:
        self.writer, self.options = writer, options
        self._began = began
        self._pid = os.getpid()
        self._memory = ProcessMemory()
        self._heap = heap_reader()
        self._main = threading.main_thread().ident
        self._over = threading.Event()
        self._pace, self._alarm = Pace(), Alarm()
        self._files: set[str] = set()
        self.attached: Attached | None = None
        self.looks: Looks | None = None
        self.paused = 0
        self.steps = 0
        self.refusal: Refusal | None = None
        self._slow_at = self._flushed = 0.0
        self._thread = threading.Thread(target=self._loop, name="lowtide", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def now(self) -> float:
        return time.time() - self._began

    def at(self, nanoseconds: int) -> float:
        """Nanoseconds since 1970 as seconds of the run."""
        return nanoseconds / 1e9 - self._began

    @property
    def alive(self) -> bool:
        """False in a fork of the watched process."""
        return os.getpid() == self._pid and not self._over.is_set()

    def rss(self) -> int:
        return self._memory.rss()

    def resident(self) -> Any:
        return self._memory.resident()

    def heap(self) -> Any:
        return self._heap() if self._heap else None

    @property
    def step(self) -> int | None:
        return self.steps - 1 if self.steps else None

    def add_step(self, step: Step) -> int:
        """Record a step; its number."""
        self.writer.add([step])
        self.keep(step.source)
        self.steps += 1
        return self.steps - 1

    def keep(self, source: Source | None) -> None:
        """Keep the text of a file that something points into."""
        if source is not None and source.file not in self._files:
            self._files.add(source.file)
            with contextlib.suppress(OSError, UnicodeDecodeError):
                self.writer.source(source.file, _text(source.file))

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """No slow readings inside: a detailed step is on."""
        self.paused += 1
        try:
            yield
        finally:
            self.paused -= 1

    def attempt(self, what: str, action: Callable[[], Any]) -> Any:
        """`action()`; what goes wrong is Lowtide's, and a note, never the script's."""
        try:
            return action()
        except Exception as error:
            if os.environ.get("LOWTIDE_DEBUG"):
                raise
            self.writer.note(f"{what} could not be recorded ({type(error).__name__}: {str(error)[:200]})")
            return None

    def stepped(self) -> None:
        """A step of the script's has ended. While they come, and none is recorded in full, they put samples off."""
        now = self.now
        self._pace.stepped(now)
        if self._pace.steps_come(now) and not self.paused:
            self._alarm.set(self._pace.due(now) - now)

    def _loop(self) -> None:
        while True:
            self._alarm.wait(self._wait(self.now))
            if self._over.is_set():
                return
            if self._pace.due(self.now) <= self.now:
                self._pace.sampled(self.now)
                self.attempt("a sample", self.sample)
            if self.looks is not None:
                self.attempt("lines of tensors", self.looks.look)
            if self.now - self._flushed > FLUSH_SECONDS:
                self.writer.flush()
                self._flushed = self.now

    def _end_thread(self) -> None:
        for _ in range(10):
            if self._thread.is_alive():
                self._alarm.set(0)  # again if it was about to set it itself
                self._thread.join(0.5)
        if not self._thread.is_alive():
            self._alarm.close()

    def _wait(self, now: float) -> float:
        """Seconds until the next sample or look."""
        until_sample = self._pace.due(now) - now
        if self.looks is None or self._pace.steps_come(now):
            return until_sample
        return min(until_sample, self.looks.wait(now))

    def sample(self) -> None:
        """Take a sample now."""
        line = self._line()  # first: reading anything lets the script go on
        found: dict[str, Any] = {"rss_bytes": self.rss(), "source": line}
        device = self.attached.device() if self.attached else None
        if device is not None:
            found.update(zip(("device_bytes", "device_peak_bytes", "reserved_bytes"), device, strict=True))
        now = self.now
        if now >= self._slow_at and not self.paused:
            before = time.perf_counter()
            found.update(self._slow(now))
            self._slow_at = now + max(SLOW_SECONDS, (time.perf_counter() - before) / SLOW_SHARE)
        self.writer.add([Sample(now, INSIDE, self.step, **found)])

    def _slow(self, now: float) -> dict[str, Any]:
        heap = self.heap()
        found: dict[str, Any] = {
            "available_bytes": available_bytes(),
            "swap_bytes": self.resident().swap,
            "cgroup_bytes": cgroup_bytes(),
            "heap_bytes": heap.live if heap else None,
            "heap_free_bytes": heap.free if heap else None,
        }
        if self.attached is not None:
            found.update(self.attached.slow(now))
        found["python_bytes"] = traced_bytes()
        self.writer.add([self._split(now, found, heap.free if heap else 0)])
        return found

    def _split(self, now: float, found: dict[str, Any], free: int) -> HostSplit:
        """What RSS is made of now."""
        resident = self.resident()
        parts = dict.fromkeys(HOST_PARTS, 0)
        parts.update(self.attached.host_parts(found) if self.attached else {})
        parts.update({"python": found["python_bytes"] or 0, "libraries": resident.files, "malloc free": free})
        return HostSplit(now, self.step, resident.rss, fitted(parts, resident.rss))

    def _line(self) -> Source | None:
        """The user's line that the main thread is on."""
        frame = sys._current_frames().get(self._main or 0)
        line = line_of(frame)
        self.keep(line)
        return line

    def script_over(self) -> None:
        if self.alive and self.attached is not None:
            self.attempt("a census", self.attached.script_over)

    def finish(self) -> None:
        """Record the end. Called once, when the script is over and what it made is still there."""
        if not self.alive:
            return
        self._over.set()
        self._end_thread()
        if self.attached is not None:
            self.attempt("the end of the run", self.attached.finish)
        self._slow_at = 0.0
        self.attempt("a sample", self.sample)
        if self.attached is None:
            self.attempt("Python's lines", lambda: self.writer.add(traced_lines(self.now, self.step)))
        self.writer.close()
