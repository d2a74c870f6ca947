"""What a call really does to the device's memory: TensorFlow's allocator events, from its profiler."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from lowtide.program import Chunk
from lowtide.tf import compat
from lowtide.tf.counting import USE_BFC, variable


class Event(NamedTuple):
    """An allocation (`op` set where TensorFlow says) or, with negative bytes, a free."""

    op: str
    requested: int
    chunk: int
    address: int
    temporary: bool
    shape: tuple[int, ...] | None = None
    """Of the tensor that it is for, where TensorFlow says."""


def memory_events(call: Callable[[], Any]) -> list[Event]:
    """Run `call` once under the profiler and return its allocations and frees in order."""
    return profiled(call).events


class Profile(NamedTuple):
    """What the profiler saw: allocations and frees in order, and the seconds of each op by its name."""

    events: list[Event]
    seconds: dict[str, float]


def profiled(call: Callable[[], Any]) -> Profile:
    """Run `call` once under the profiler."""
    with tempfile.TemporaryDirectory(prefix="lowtide-profile-") as folder:
        tf.profiler.experimental.start(folder)
        try:
            call()
        finally:
            tf.profiler.experimental.stop()
        spaces = [file.read_bytes() for file in Path(folder).rglob("*.xplane.pb")]
    raw = [event for space in spaces for event in compat.memory_events(space)]
    seconds = {name: took for space in spaces for name, took in compat.op_seconds(space).items()}
    return Profile([_event(name, fields) for _, name, fields in raw], seconds)


def _event(name: str, fields: dict[str, Any]) -> Event:
    sign = 1 if name == "MemoryAllocation" else -1
    return Event(
        str(fields.get("tf_op", "")),
        sign * int(fields["requested_bytes"]),
        sign * int(fields["allocation_bytes"]),
        int(fields["addr"]),
        fields.get("region_type") == "temp",
        _dims(str(fields.get("shape", ""))),
    )


def _dims(text: str) -> tuple[int, ...] | None:
    """"[2,3]" as numbers; None where it says nothing of the kind."""
    inner = text.strip()[1:-1]
    parts = [part.strip() for part in inner.split(",") if part.strip()]
    return tuple(map(int, parts)) if text.startswith("[") and all(part.isdigit() for part in parts) else None


def requested_peak(events: list[Event]) -> int:
    """The most bytes asked for and not yet freed at one moment, compared with when the events began.

    A buffer from before may be freed too: a variable that moved.
    """
    live: dict[int, int] = {}
    total = peak = 0
    for event in events:
        if event.requested > 0:
            live[event.address] = event.requested
            total += event.requested
            peak = max(peak, total)
        else:
            total -= live.pop(event.address, -event.requested)
    return peak


def device_bytes() -> dict[str, int]:
    """`current` and `peak` bytes of the default device, at chunk level."""
    return dict(tf.config.experimental.get_memory_info(compat.default_device().rpartition("device:")[2]))


def reset_peak() -> None:
    tf.config.experimental.reset_memory_stats(compat.default_device().rpartition("device:")[2])


def chunks() -> tuple[Chunk, ...] | None:
    """The map of the device's allocator, where it can be had: logical devices of a CPU share one."""
    found = compat.allocator_map() if compat.is_only_device() else None
    return None if found is None else tuple(Chunk(*chunk) for chunk in found)


def counts_bytes() -> bool:
    """Whether the default device's allocator keeps count: a GPU's does, a CPU's on BFC only."""
    return "GPU" in compat.default_device() or variable(USE_BFC) in ("1", "true")
