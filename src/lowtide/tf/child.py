"""Starts the worker process and reads its answer. Imports no TensorFlow: the command that calls this stays light."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lowtide.errors import LowtideError
from lowtide.program import Program, load_program

CONTROLLED = {
    # The CPU on the allocator GPUs use: it counts bytes, and refuses beyond a limit.
    "TF_CPU_ALLOCATOR_USE_BFC": "1",
    # glibc maps each region below the last, always: the allocator's choices can be replayed to the byte.
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "131072",
}
"""Environment of every process whose memory Lowtide predicts or measures."""


class ScriptFailed(LowtideError):
    """The user's script failed by itself; its traceback has been printed."""

    exit_code = 1


@dataclass(frozen=True)
class Captured:
    """What the worker found: the step, and how the script runs it."""

    program: Program
    compiler: str


def capture_target(target: str, arguments: Sequence[str] = ()) -> Captured:
    """Run `target` up to its first training step in a process of its own and return that step."""
    with tempfile.TemporaryDirectory(prefix="lowtide-") as folder:
        request = Path(folder) / "request.json"
        request.write_text(json.dumps({"target": target, "arguments": list(arguments), "answer": folder}))
        flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={folder}/xla --xla_dump_hlo_as_text"
        own = {"XLA_FLAGS": flags.strip(), "TF_BFC_MEMORY_DUMP": f"{folder}/allocator"}
        environment = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, **CONTROLLED, **own}
        command = [sys.executable, "-m", "lowtide.tf.worker", str(request)]
        code = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=False).returncode
        return _read_answer(Path(folder), target, code)


def _read_answer(folder: Path, target: str, code: int) -> Captured:
    try:
        answer = json.loads((folder / "answer.json").read_text())
    except FileNotFoundError:
        raise ScriptFailed(f"{target} was ended by {_cause(code)} before its first training step") from None
    if answer["exit_code"] == 1:
        raise ScriptFailed(answer["error"])
    if answer["exit_code"]:
        raise LowtideError(answer["error"])
    return Captured(load_program(folder / "program.lowtide"), answer["compiler"])


def _cause(code: int) -> str:
    if code < 0:
        name = signal.Signals(-code).name
        return f"{name}{' (often the out-of-memory killer)' if name == 'SIGKILL' else ''}"
    return f"exit code {code}"
