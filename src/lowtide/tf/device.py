"""The device's own count of its bytes, read and reset by us without the script seeing any of it.

TensorFlow keeps one peak, and resetting it is the only way to learn the peak of a part of the run. The script may ask
for that peak itself, so its questions are answered from our books: the highest since it last reset.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lowtide.tf import compat
from lowtide.tf.compat_watch import Chunk, Stats, cpu_allocator
from lowtide.tf.profile import counts_bytes


class DeviceCounter:
    """Bytes of the default device. `peaks` remembers the highest since each reader last asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cpu = None if "GPU" in compat.default_device() else cpu_allocator()
        self.name = compat.default_device().rpartition("device:")[2]
        self.counts = counts_bytes()
        self._peaks = {"script": 0}

    def read(self, reader: str) -> Stats | None:
        """Now, with the highest since `reader` last asked."""
        if not self.counts:
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

    def chunks(self) -> list[Chunk] | None:
        """The allocator's map, where it can be had."""
        return self._cpu.chunks() if self._cpu else None

    def _raw(self) -> Stats:
        if self._cpu is not None:
            return self._cpu.stats()
        found = tf.config.experimental.get_memory_info(self.name)
        return Stats(found["current"], found["peak"], None)

    def _clear(self) -> None:
        if self._cpu is not None:
            self._cpu.clear()
        else:
            tf.config.experimental.reset_memory_stats(self.name)

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

    def _is_ours(self, device: Any) -> bool:
        return self.counts and self._cpu is not None and str(device).upper().endswith(self.name.upper())
