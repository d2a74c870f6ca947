"""The parent of `lowtide run`: starts the watched child, samples it from outside, and outlives whatever ends it.

Imports no TensorFlow.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from lowtide.machine import oom_kills
from lowtide.program.files import require_file
from lowtide.record import Outcome, Run, Sample, Writer, create_recording, finish_recording, load_recording
from lowtide.record.host import ProcessMemory, available_bytes, cgroup_bytes, this_machine
from lowtide.record.types import OUTSIDE
from lowtide.tf.counting import LIMIT, USE_BFC
from lowtide.tf.signals import pass_on_interrupt, passed_on
from lowtide.tf.tracers import check_tracer
from lowtide.tf.watch import FLUSH_SECONDS
from lowtide.units import format_size

INTERVAL = 0.2
SCARCE = 0.03
"""A process killed when less than this part of the machine's memory was available died of it, we say."""

MEMORY_VARIABLES = ("TF_", "XLA_", "MALLOC_", "CUDA_", "LD_PRELOAD", "KERAS_BACKEND", "OMP_", "PYTHONMALLOC")


@dataclass(frozen=True)
class Target:
    """What to run: a script, or a module as after `python -m`."""

    name: str
    arguments: tuple[str, ...] = ()
    module: bool = False


class Ran(NamedTuple):
    """`code` is the script's exit code, 1 when a signal ended it; `notes` are those that the file has no room for."""

    code: int
    outcome: Outcome
    notes: tuple[str, ...]


def run_target(
    target: Target, out: Path, detail_steps: int, host: str, on_sample: Callable[[Sample], None] | None = None
) -> Ran:
    """Run the target watched; the recording is in `out`."""
    if not target.module:
        require_file(target.name, "a script")
    check_tracer(host)
    began = time.time()
    environment = child_environment()
    create_recording(out, _run(target, began, host, environment))
    request = {
        "target": target.name, "arguments": list(target.arguments), "module": target.module,
        "recording": str(out.resolve()), "began": began, "detail_steps": detail_steps, "host": host,
        "parent": os.getpid(), "ours": [name for name in (USE_BFC, LIMIT) if name not in os.environ],
    }  # fmt: skip
    kills = oom_kills()
    child = _start(request, environment)
    writer = Writer(out)
    with passed_on(child):
        last = _follow(child, writer, began, on_sample)
        code = child.wait()
    outcome = _conclude(out, writer, code, time.time() - began, last, kills)
    return Ran(code if code >= 0 else 1, outcome, writer.unwritten())


def _start(request: dict[str, Any], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """The watched child. Its request is in a file without a name, so that nothing is left of it whoever is killed."""
    with tempfile.TemporaryFile("w+") as file:
        json.dump(request, file)
        file.seek(0)
        command = [sys.executable, "-m", "lowtide.tf.watched", str(file.fileno())]
        return subprocess.Popen(command, env=environment, pass_fds=[file.fileno()])


def child_environment() -> dict[str, str]:
    """The user's own environment; where there is no GPU, the CPU on the allocator that counts.

    Without what TensorFlow logs as information, unless the user has asked for it: its profiler logs each look.
    """
    environment = {"TF_CPP_MIN_LOG_LEVEL": "1", **os.environ}
    if not has_gpu():
        environment.setdefault(USE_BFC, "1")
        if LIMIT not in environment:
            # Its own limit is 64 GiB; the plain run has none but the machine's.
            environment[LIMIT] = str(max(64 << 10, this_machine().memory_bytes >> 20))
    return environment


def has_gpu() -> bool:
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "-1":
        return False
    return Path("/dev/nvidia0").exists() or Path("/dev/kfd").exists()


def _run(target: Target, began: float, host: str, environment: dict[str, str]) -> Run:
    relevant = {k: v for k, v in sorted(environment.items()) if k.startswith(MEMORY_VARIABLES)}
    versions = {"lowtide": version("lowtide"), "python": platform.python_version()}
    script = f"-m {target.name}" if target.module else target.name
    return Run(script, target.arguments, str(Path.cwd()), began, this_machine(), versions, host, relevant)


def _follow(
    child: subprocess.Popen[bytes], writer: Writer, began: float, on_sample: Callable[[Sample], None] | None
) -> Sample | None:
    """Sample the child from outside until it ends; Ctrl-C is the child's affair."""
    last: Sample | None = None
    with contextlib.suppress(OSError), _end_of(child) as wait_for_end:
        memory = ProcessMemory(child.pid)
        flushed = began
        while child.poll() is None:
            try:
                last = _sample(memory, began)
                writer.add([last])
                if time.time() - flushed > FLUSH_SECONDS:
                    writer.flush()
                    flushed = time.time()
                if on_sample is not None:
                    on_sample(last)
                wait_for_end(INTERVAL)
            except KeyboardInterrupt:
                pass_on_interrupt(child)
        memory.close()
    return last


@contextlib.contextmanager
def _end_of(child: subprocess.Popen[bytes]) -> Iterator[Callable[[float], object]]:
    """Waits for a child's end, so many seconds at most, without asking again and again where the system can tell."""

    def ask(seconds: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(seconds)

    try:
        end = os.pidfd_open(child.pid)
    except (AttributeError, OSError):  # not Linux
        yield ask
        return
    try:
        yield lambda seconds: select.select([end], [], [], seconds)
    finally:
        os.close(end)


def _sample(memory: ProcessMemory, began: float) -> Sample:
    resident = memory.resident()
    return Sample(
        time.time() - began, OUTSIDE, rss_bytes=resident.rss, swap_bytes=resident.swap,
        available_bytes=available_bytes(), cgroup_bytes=cgroup_bytes(),
    )  # fmt: skip


def _conclude(
    out: Path, writer: Writer, code: int, seconds: float, last: Sample | None, kills: int | None
) -> Outcome:
    """Write how it ended: the child's own word, where it could still say it and it fits the exit code."""
    writer.flush()
    said = load_recording(out).outcome
    if code < 0:
        outcome = _signalled(said, -code, seconds, last, kills)
    elif said.how == "unknown":
        outcome = Outcome("exit" if code else "done", seconds, code)
    else:
        outcome = replace(said, seconds=seconds, exit_code=code)
    writer.outcome(outcome)
    writer.close()
    finish_recording(out)
    return outcome


def _signalled(said: Outcome, number: int, seconds: float, last: Sample | None, kills: int | None) -> Outcome:
    name = signal.Signals(number).name
    why = ""
    if name == "SIGKILL":
        why = _why_killed(last, kills)
    elif said.out_of_memory:
        why = "it had run out of memory before"
    return replace(
        said, how="signal", seconds=seconds, exit_code=None, signal=name,
        out_of_memory=bool(why) or said.out_of_memory, why=why,
    )  # fmt: skip


def _why_killed(last: Sample | None, kills: int | None) -> str:
    """The kernel's own count of kills, or how full things were just before; "" when neither tells of memory."""
    machine, now = this_machine(), oom_kills()
    limit = machine.cgroup_limit_bytes
    if kills is not None and now is not None and now > kills:
        room = f"its control group may have {format_size(limit)}" if limit else "the machine was full"
        return f"the kernel killed for want of memory: {room}"
    if last is None or last.available_bytes is None:
        return ""
    if limit and last.cgroup_bytes and last.cgroup_bytes > (1 - SCARCE) * limit:
        return f"its control group had {format_size(last.cgroup_bytes)} of {format_size(limit)} when it was killed"
    if last.available_bytes < SCARCE * machine.memory_bytes:
        left, whole = format_size(last.available_bytes), format_size(machine.memory_bytes)
        return f"{left} of the machine's {whole} were available when it was killed"
    return ""


def new_recording(target: Target) -> Path:
    """Where the recording goes when nobody says: beside where one works, named after the script."""
    name = target.name.rpartition(".")[2] if target.module else Path(target.name).stem
    return Path(f"{name}.lowtide.db")


