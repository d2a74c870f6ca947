"""The device's own count of its bytes, read and reset by us without the script seeing any of it.

TensorFlow keeps one peak, and resetting it is the only way to learn the peak of a part of the run. The script may ask
for that peak itself, so its questions are answered from our books: the highest since it last reset.

Asking what devices there are opens them, and a script that sets threads or divides a device must do so before. So
nothing is asked until the script has opened them itself.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from lowtide.tf import compat, compat_watch
from lowtide.tf.compat_watch import Chunk, CpuAllocator, Stats, cpu_allocator, devices_have_started
from lowtide.tf.profile import counts_bytes, device_bytes


class Opened(NamedTuple):
    """The default device, once it is open."""

    name: str
    cpu: CpuAllocator | None
    counts: bool


class DeviceCounter:
    """Bytes of the default device. `peaks` remembers the highest since each reader last asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._opened: Opened | None = None
        self._peaks = {"script": 0}
        self._answers: Any = None

    @property
    def opened(self) -> Opened | None:
        if self._opened is None and devices_have_started():
            self.open()
        return self._opened

    def open(self) -> None:
        """Open it now: the script is about to compute, and would."""
        if self._opened is None:
            device = compat.default_device()
            allocator = None if "GPU" in device else cpu_allocator()
            self._opened = Opened(device.rpartition("device:")[2], allocator, counts_bytes())

    @property
    def _cpu(self) -> CpuAllocator | None:
        return self.opened.cpu if self.opened else None

    def read(self, reader: str) -> Stats | None:
        """Now, with the highest since `reader` last asked."""
        if self.opened is None or not self.opened.counts:
            return None
        with self._lock:
            stats, peaks = self._raw(), self._peaks
            self._clear()
            for name, before in peaks.items():
                if before < stats.peak:
                    peaks[name] = stats.peak
            highest = max(peaks.get(reader, 0), stats.peak)
            peaks[reader] = stats.in_use
            return Stats(stats.in_use, highest, stats.reserved)

    def forget(self, *readers: str) -> None:
        """They ask no more, or begin anew."""
        with self._lock:
            for reader in readers:
                self._peaks.pop(reader, None)

    def in_use(self) -> int | None:
        """Bytes now, where they can be had at little cost; no reader's peak is touched."""
        return self._cpu.stats().in_use if self._cpu else None

    def chunks(self) -> list[Chunk] | None:
        """The allocator's map, where it can be had."""
        return self._cpu.chunks() if self._cpu else None

    def _raw(self) -> Stats:
        if self._cpu is not None:
            return self._cpu.stats()
        found = tf.config.experimental.get_memory_info(self._name)
        return Stats(found["current"], found["peak"], None)

    def _clear(self) -> None:
        if self._cpu is not None:
            self._cpu.clear()
        else:
            tf.config.experimental.reset_memory_stats(self._name)

    def answering(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`get_memory_info` as if nobody but the script had ever reset the peak."""

        @functools.wraps(original)
        def get_memory_info(context: Any, device: Any) -> Any:
            found = original(context, device)
            if self._is_ours(device):
                with self._lock:
                    found = {**found, "peak": max(found["peak"], self._peaks.get("script", 0))}
            return found

        return get_memory_info

    def resetting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def reset_memory_stats(context: Any, device: Any) -> Any:
            if self._is_ours(device):
                self.read("script")
            return original(context, device)

        return reset_memory_stats

    def answer_the_script(self) -> None:
        """From here on the script's questions are answered from our books, whoever hooks in and out meanwhile."""
        context: Any = compat_watch.CONTEXT_CLASS
        if self._answers is None or context.get_memory_info is not self._answers:
            context.get_memory_info = self._answers = self.answering(context.get_memory_info)
            context.reset_memory_stats = self.resetting(context.reset_memory_stats)

    def _is_ours(self, device: Any) -> bool:
        return self._cpu is not None and counts_bytes() and str(device).upper().endswith(self._name.upper())

    @property
    def _name(self) -> str:
        return self.opened.name if self.opened else ""


COUNTER = DeviceCounter()
"""There is one count, so all who read it keep one set of books."""


class PeakSince:
    """The most that the device has had since this was made. What the script is told of its peak stays as it was."""

    def __init__(self) -> None:
        self._reader = f"since {id(self)}"
        COUNTER.open()
        self._before = self._highest = 0
        if self._can_reset:
            COUNTER.answer_the_script()
            COUNTER.read(self._reader)
        else:
            self._before = device_bytes()["peak"]

    @property
    def _can_reset(self) -> bool:
        """On a GPU the script would see it: there only a peak above the one before is known to be new."""
        return COUNTER.opened is not None and COUNTER.opened.cpu is not None

    def read(self) -> tuple[int, int]:
        """In use now, and the peak."""
        if self._can_reset:
            stats = COUNTER.read(self._reader)
            in_use, peak = (stats.in_use, stats.peak) if stats else (0, 0)
        else:
            found = device_bytes()
            in_use, peak = found["current"], found["peak"] if found["peak"] > self._before else 0
        self._highest = max(self._highest, in_use, peak)
        return in_use, self._highest

    def close(self) -> None:
        COUNTER.forget(self._reader)
