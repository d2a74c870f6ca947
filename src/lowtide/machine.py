"""The memory of this machine, as one process may have it: RAM, swap, and the limits of its control groups.

A container is a control group with a limit, and a limit may stand on any group above the process's own. The one that
bites first is the one with least left. Version 1 and version 2 of control groups are read, from /proc and /sys alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import psutil


class Group(NamedTuple):
    """A control group with a limit. `used` leaves out file cache that the kernel drops when asked for memory."""

    path: str
    limit: int
    used: int

    @property
    def left(self) -> int:
        return max(0, self.limit - self.used)


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes. `available` is what the kernel can give without swapping; `group` is the one whose limit bites first."""

    total: int
    available: int
    swap_total: int
    swap_free: int
    group: Group | None

    @property
    def usable(self) -> int:
        """What a process started here can have before it swaps or is killed."""
        return self.available if self.group is None else min(self.available, self.group.left)


def memory(root: Path = Path("/")) -> Memory:
    """What there is now. `root` is where /proc and /sys are looked for."""
    ram, swap = psutil.virtual_memory(), psutil.swap_memory()
    group = tightest_group(int(ram.total), root)
    return Memory(int(ram.total), int(ram.available), int(swap.total), int(swap.free), group)


def tightest_group(total: int, root: Path = Path("/")) -> Group | None:
    """Of the groups around this process the one with least left; a limit of `total` or more is none."""
    return LimitedGroups(total, root).tightest()


class LimitedGroups:
    """The groups around this process that have a limit below `total`, looked for once: to be asked again and again."""

    def __init__(self, total: int, root: Path = Path("/")) -> None:
        self._limited = [place for place in _places(root) if (group := place.group()) and group.limit < total]

    def tightest(self) -> Group | None:
        """The one with least left now."""
        now = (place.group() for place in self._limited)
        return min((group for group in now if group), key=lambda group: group.left, default=None)


def oom_kills(root: Path = Path("/")) -> int | None:
    """How many processes the kernel has killed for want of memory: of this process's own group, which counts kills by
    the limit of a group above it too; of the whole machine, where no group counts.
    """
    files = [root / "proc/vmstat"]
    for version, mount, path in _memberships(root):
        folder = root / mount.lstrip("/") / str(path).lstrip("/")
        files.insert(0, folder / version.kills)
    for file in files:
        for line in _lines(file):
            name, _, number = line.partition(" ")
            if name == "oom_kill" and number.isdecimal():
                return int(number)
    return None


class _Files(NamedTuple):
    """What a version of control groups calls its numbers."""

    limit: str
    used: str
    cache: str
    kills: str


_VERSION_1 = _Files("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "memory.oom_control")
_VERSION_2 = _Files("memory.max", "memory.current", "inactive_file", "memory.events")


class _Place(NamedTuple):
    """Where a group's numbers are read."""

    folder: Path
    files: _Files

    def group(self) -> Group | None:
        limit, used = _number(self.folder / self.files.limit), _number(self.folder / self.files.used)
        if limit is None or used is None:
            return None  # "max", or the root of the tree, which has no limit
        statistics = dict(line.split(maxsplit=1) for line in _lines(self.folder / "memory.stat"))
        return Group(str(self.folder), limit, max(0, used - int(statistics.get(self.files.cache, 0))))


def _places(root: Path) -> Iterator[_Place]:
    for files, mount, path in _memberships(root):
        for folder in (path, *path.parents):
            yield _Place(root / mount.lstrip("/") / str(folder).lstrip("/"), files)


def _memberships(root: Path) -> Iterator[tuple[_Files, str, PurePosixPath]]:
    """(version, where its tree is mounted, the process's group in it) for each tree that counts memory."""
    groups = {}
    for line in _lines(root / "proc/self/cgroup"):
        number, controllers, path = line.split(":", 2)
        if number == "0" and not controllers:
            groups["cgroup2"] = path
        elif "memory" in controllers.split(","):
            groups["cgroup"] = path
    for line in _lines(root / "proc/self/mountinfo"):
        place, _, kind = line.partition(" - ")
        inside, mount = place.split()[3:5]
        system, _, options = kind.split(" ", 2)
        if system in groups and (system == "cgroup2" or "memory" in options.split(",")):
            yield _VERSION_2 if system == "cgroup2" else _VERSION_1, mount, _relative(groups[system], inside)


def _relative(path: str, inside: str) -> PurePosixPath:
    """A group's path below the mount: a container's tree is often mounted from the container's own group on."""
    try:
        below = PurePosixPath(path).relative_to(inside)
    except ValueError:
        return PurePosixPath("/")  # the group is out of sight; the mount's own root is the nearest that can be read
    return PurePosixPath("/") if ".." in below.parts else "/" / below


def _number(file: Path) -> int | None:
    text = "".join(_lines(file)).strip()
    return int(text) if text.isdecimal() else None


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []
