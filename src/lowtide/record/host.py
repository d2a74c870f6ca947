"""What Linux says of a process's memory, read cheaply enough to be read twenty times a second."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil

from lowtide.machine import LimitedGroups
from lowtide.record.types import Machine

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Resident(NamedTuple):
    """`rss` and what of it are pages of files; `swap` is what of the process is out there."""

    rss: int
    files: int
    swap: int


class ProcessMemory:
    """The memory of one process, this one or another, through a file that stays open."""

    def __init__(self, pid: int | None = None) -> None:
        folder = f"/proc/{pid or 'self'}"
        self._short = os.open(f"{folder}/statm", os.O_RDONLY | os.O_CLOEXEC)
        self._long = os.open(f"{folder}/status", os.O_RDONLY | os.O_CLOEXEC)

    def rss(self) -> int:
        """Raises ProcessLookupError when the process is gone."""
        return int(os.pread(self._short, 128, 0).split()[1]) * _PAGE

    def resident(self) -> Resident:
        fields = dict(line.split(b":", 1) for line in os.pread(self._long, 8192, 0).splitlines() if b":" in line)
        sizes = [int(fields.get(name, b"0 kB").split()[0]) << 10 for name in (b"VmRSS", b"RssFile", b"VmSwap")]
        return Resident(*sizes)

    def close(self) -> None:
        os.close(self._short)
        os.close(self._long)


def available_bytes() -> int:
    return int(psutil.virtual_memory().available)


def cgroup_bytes() -> int | None:
    """What the control group whose limit bites first has in use; None when no limit is below the machine's memory."""
    group = _limited_groups().tightest()
    return group.used if group is not None else None


def cgroup_limit() -> int | None:
    group = _limited_groups().tightest()
    return group.limit if group is not None else None


@functools.cache
def _limited_groups() -> LimitedGroups:
    return LimitedGroups(int(psutil.virtual_memory().total))


def this_machine() -> Machine:
    memory, swap = psutil.virtual_memory(), psutil.swap_memory()
    return Machine(os.cpu_count() or 1, int(memory.total), int(swap.total), cgroup_limit())


def fitted(parts: dict[str, int], rss: int) -> dict[str, int]:
    """The parts of RSS with a `rest` that makes them whole.

    Each part is counted by whoever knows it, and not all of it need be resident: a region that was reserved and
    never touched is not. So where they come to more than RSS, what may be untouched gives way first.
    """
    parts = dict(parts)
    parts["rest"] = 0
    over = sum(parts.values()) - rss
    for name in ("device reserve", "malloc free", "graphs", "python", "tf.data", "device in use", "libraries"):
        less = min(max(0, over), parts[name])
        parts[name] -= less
        over -= less
    parts["rest"] = max(0, -over)
    return parts


class Heap(NamedTuple):
    """glibc's own count: live blocks, and freed ones that it has not given back."""

    live: int
    free: int


class _Mallinfo(ctypes.Structure):
    _names_ = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = tuple((name, ctypes.c_size_t) for name in _names_.split())


def heap_reader() -> Callable[[], Heap] | None:
    """A function that asks glibc; None where there is no glibc 2.33 or newer."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):
        return None
    mallinfo.restype = _Mallinfo

    def read() -> Heap:
        found = mallinfo()
        return Heap(found.uordblks + found.hblkhd, found.fordblks)

    return read


def give_back_free_heap() -> None:
    """Let glibc return to the system what it keeps for later; nothing where there is no glibc."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


class HighWater:
    """By how much this process has grown at the most since this was made, by the kernel's own high-water mark."""

    def __init__(self) -> None:
        with contextlib.suppress(OSError):  # not allowed everywhere: then the mark may be of before
            Path("/proc/self/clear_refs").write_text("5")
        self._before, self._mark = _status("VmRSS"), _status("VmHWM")

    def grown(self) -> int:
        mark = _status("VmHWM")
        highest = mark if mark > self._mark else _status("VmRSS")
        return max(0, highest - self._before)


def _status(name: str) -> int:
    """Bytes of a field of this process's status; on other systems than Linux, RSS for any."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) << 10
    return int(psutil.Process().memory_info().rss)
