"""What a script uses to watch itself, and what that keeps: profilers, the debugger's dumps, summaries."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from lowtide.diagnose.code import Code, read_code
from lowtide.diagnose.evidence import arrays_explain, is_worth, per_step, unexplained
from lowtide.diagnose.trends import rise
from lowtide.diagnose.types import PROBLEM, Finding
from lowtide.program import Source
from lowtide.record import Recording
from lowtide.record.views import inside

NOTABLE = 0.02
CLEARLY = 0.05
"""Where only the source says that a watcher is on, the rise has to be clear."""


def profiler_on(recording: Recording) -> Iterator[Finding]:
    """A profiler that was started and not stopped: events pile up with every op."""
    started = [m.source for m in recording.made if m.kind == "profiler"]
    size = max(unexplained(recording, NOTABLE), rise(recording, "rss_bytes") - rise(recording, "device_bytes"))
    code = read_code(recording)
    if not started:
        stop = bool(code.calls("profiler.experimental.stop", "trace_export", "trace_off"))
        calls = [line for line, _ in code.calls("profiler.experimental.start", "summary.trace_on")]
        started = calls if calls and not stop else []
    if started and is_worth(recording, size, NOTABLE):
        yield _finding(
            recording, "profiler-left-on", "a profiler was started and not stopped: its events stay in memory", size,
            started[-1], "profile a few steps: `with tf.profiler.experimental.Profile(logdir):` around them, or stop()",
        )  # fmt: skip


def debug_dump(recording: Recording) -> Iterator[Finding]:
    """The debugger keeps what it dumps until its buffer is full or flushed: whole tensors, if it is told so."""
    lines = [line for line, _ in read_code(recording).calls("enable_dump_debug_info")]
    size = _outside_device(recording)
    if lines and is_worth(recording, size, CLEARLY):
        yield _finding(
            recording, "debugger-left-on", "the debugger's dump keeps what every op computes", size, lines[-1],
            'tensor_debug_mode="CURT_HEALTH" keeps a few numbers of each tensor; or a smaller circular_buffer_size',
        )  # fmt: skip


def summaries(recording: Recording) -> Iterator[Finding]:
    """Summaries wait in their writer: a long queue, or writers made again and again and never closed."""
    code = read_code(recording)
    made = [(line, call) for line, call in code.calls("create_file_writer") if _is_suspect(code, line, call)]
    size = _outside_device(recording)
    if made and code.calls(*_WRITES) and is_worth(recording, size, CLEARLY):
        yield _finding(
            recording, "summaries-waiting", "summaries wait in memory until their writer is flushed or closed", size,
            made[-1][0], "leave max_queue at its default, `flush()` now and then, and `close()` a writer when done",
        )  # fmt: skip


_WRITES = tuple(f"summary.{kind}" for kind in ("write", "image", "histogram", "scalar", "audio", "text", "graph"))


USUAL_QUEUE = 10
"""Summaries that a writer lets wait by itself: a shorter queue holds no more."""


def _is_suspect(code: Code, line: Source, call: ast.Call) -> bool:
    file = code.file(line.file)
    queues = [keyword.value for keyword in call.keywords if keyword.arg == "max_queue"]
    return code.in_loop(line) or any(not 0 < (file.number(q) if file else 0) <= USUAL_QUEUE for q in queues)


def _outside_device(recording: Recording) -> int:
    """By how much the process rose once there was a device, without what that has and arrays that are held."""
    begun = [s for s in inside(recording) if s.rss_bytes is not None and s.device_bytes is not None]
    sizes = [(s.rss_bytes or 0) - (s.reserved_bytes or 0) for s in begun]
    return max(sizes) - sizes[0] - arrays_explain(recording) if sizes else 0


def _finding(recording: Recording, id_: str, title: str, size: int, source: Source, fix: str) -> Finding:
    text = read_code(recording).text(source)
    return Finding(id_, PROBLEM, title, size, source, text, fix, per_step(recording, size), "", size)
