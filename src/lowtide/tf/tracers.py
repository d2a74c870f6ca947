"""Who counts Python's and NumPy's memory: nobody, tracemalloc or memray. Imports no TensorFlow.

tracemalloc counts what Python and NumPy allocate, and can be asked at any moment. memray sees every malloc of the
process, TensorFlow's included, for less time; it is asked once, at the end.
"""

from __future__ import annotations

import os
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lowtide.errors import BadUse
from lowtide.program import Source
from lowtide.record import HostLine
from lowtide.tf.places import is_users_file

if TYPE_CHECKING:
    from lowtide.tf.watch import Watch

TRACERS = ("off", "tracemalloc", "memray", "memray-native")
FRAMES = 4
"""How deep tracemalloc remembers: NumPy and Keras stand between an allocation and the user's line."""
MOST_LINES = 100
_NUMPY = 389047
"""The domain in which NumPy tells tracemalloc of its buffers."""


def start_tracer(name: str, watch: Watch) -> Callable[[], None]:
    """Begin to count; returns what ends it and records what it knows."""
    if name == "tracemalloc":
        tracemalloc.start(FRAMES)
        return tracemalloc.stop
    if name.startswith("memray"):
        return _start_memray(watch, native=name.endswith("native"))
    return lambda: None


def check_tracer(name: str) -> None:
    """Say so at once when a tracer is not there."""
    if name.startswith("memray"):
        try:
            import memray  # noqa: F401
        except ImportError:
            raise BadUse(f"--host {name} needs memray, which is not installed: pip install memray") from None


def traced_bytes() -> int | None:
    """What Python and NumPy have allocated now, where tracemalloc counts."""
    return tracemalloc.get_traced_memory()[0] if tracemalloc.is_tracing() else None


def traced_lines(now: float, step: int | None) -> list[HostLine]:
    """Python's and NumPy's live bytes by the user's line, the largest first, where tracemalloc counts."""
    if not tracemalloc.is_tracing():
        return []
    totals: dict[tuple[Source, str], list[int]] = {}
    known: dict[int, Source | None] = {}
    # The plain tuples inside: an object for each of a million traces would take a minute.
    traces: Any = tracemalloc.take_snapshot().traces
    for domain, size, frames, *_ in traces._traces:
        if id(frames) not in known:  # one stack is one tuple, however often it allocated
            known[id(frames)] = _users_line(frames)
        source = known[id(frames)]
        if source is not None:
            total = totals.setdefault((source, "numpy" if domain == _NUMPY else "python"), [0, 0])
            total[0] += size
            total[1] += 1
    return _largest(totals, now, step)


def _users_line(frames: Iterable[tuple[str, int]]) -> Source | None:
    """The first of the frames, innermost first, that is the user's."""
    for file, line in frames:
        if is_users_file(file):
            return Source(file, line)
    return None


def _largest(totals: dict[tuple[Source, str], list[int]], now: float, step: int | None) -> list[HostLine]:
    rows = [HostLine(now, step, source, kind, size, blocks) for (source, kind), (size, blocks) in totals.items()]
    return sorted(rows, key=lambda row: -row.bytes)[:MOST_LINES]


def _start_memray(watch: Watch, native: bool) -> Callable[[], None]:
    import memray

    folder = tempfile.TemporaryDirectory(prefix="lowtide-memray-")
    file = Path(folder.name) / "trace.bin"
    pid = os.getpid()
    destination = memray.FileDestination(str(file), overwrite=True, compress_on_exit=False)
    tracker = memray.Tracker(
        destination=destination, native_traces=native, file_format=memray.FileFormat.AGGREGATED_ALLOCATIONS
    )
    tracker.__enter__()

    def stop() -> None:
        if os.getpid() != pid:
            return
        tracker.__exit__(None, None, None)
        watch.attempt("memray's lines", lambda: watch.writer.add(_memray_lines(file, watch.now, watch.step)))
        watch.writer.close()
        folder.cleanup()

    return stop


def _memray_lines(file: Path, now: float, step: int | None) -> list[HostLine]:
    """Bytes at the process's highest, by the user's line: "python" for Python's own allocator, "malloc" for others."""
    import memray

    totals: dict[tuple[Source, str], list[int]] = {}
    with memray.FileReader(str(file)) as reader:
        for record in reader.get_high_watermark_allocation_records(merge_threads=True):
            source = _users_line((frame[1], frame[2]) for frame in record.stack_trace())
            if source is not None:
                kind = "python" if "PYMALLOC" in _allocator(record) else "malloc"
                total = totals.setdefault((source, kind), [0, 0])
                total[0] += record.size
                total[1] += record.n_allocations
    return _largest(totals, now, step)


def _allocator(record: Any) -> str:
    memray = sys.modules["memray"]
    return str(memray.AllocatorType(record.allocator).name)
