"""Starts the worker process and reads its answer. Imports no TensorFlow: the command that calls this stays light."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lowtide.errors import BadUse, LowtideError
from lowtide.program import Program, load_program
from lowtide.tf.counting import LIMIT, USE_BFC
from lowtide.tf.signals import pass_on_interrupt, passed_on

CONTROLLED = {
    # The CPU on the allocator GPUs use: it counts bytes, and refuses beyond a limit.
    USE_BFC: "1",
    # glibc maps each region below the last, always: the allocator's choices can be replayed to the byte.
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "131072",
}
"""Environment of every process whose memory Lowtide predicts or measures."""
LARGER = "what a script makes besides its step is not planned: give it a larger budget"


class ScriptFailed(LowtideError):
    """The user's script failed by itself; its traceback has been printed."""

    exit_code = 1


class NoRoomToBegin(ScriptFailed):
    """A script that is to fit was refused memory before its first training step."""


RUN_EAGERLY = "run_eagerly=True"
NO_GRAPH = f"the model is compiled with {RUN_EAGERLY} and has no graph to plan: compile it without"
IN_A_SESSION = (
    "the script trains with a v1 Session, and fit plans a Keras model or a tf.function; put the step into a "
    "tf.function, or use `lowtide predict`, which takes a Session"
)
ORDERED_BY_XLA = "the step is compiled with jit_compile=True, and XLA keeps no order: compile it without"


@dataclass(frozen=True)
class Captured:
    """What the worker found: the step, and how the script runs it."""

    program: Program
    compiler: str
    in_session: bool = False

    def require_fit(self) -> None:
        """What `fit` can run by a plan."""
        if self.in_session:
            raise BadUse(IN_A_SESSION)
        self.require_order()

    def require_order(self) -> None:
        """A plan is an order of ops in a graph."""
        if self.compiler:
            raise BadUse(ORDERED_BY_XLA)
        if any(note.what == RUN_EAGERLY for note in self.program.notes):
            raise BadUse(NO_GRAPH)


def capture_target(target: str, arguments: Sequence[str] = (), batch: int | None = None) -> Captured:
    """Run `target` up to its first training step in a process of its own and return that step.

    `batch`: one that the step has to be right at, beside the script's own.
    """
    _require_taken(target, arguments)
    with tempfile.TemporaryDirectory(prefix="lowtide-") as folder:
        command, environment = _worker(folder, target, arguments, batches=() if batch is None else (batch,))
        child = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)
        try:
            with passed_on(child):
                code = child.wait()
        finally:
            child.kill()  # nothing to one that has ended
        return _read_answer(Path(folder), target, code)


def _require_taken(target: str, arguments: Sequence[str]) -> None:
    """Only a script has a use for arguments."""
    path, _, factory = target.partition(":")
    if arguments and (factory or path.endswith(".keras")):
        given = " ".join(arguments)
        raise BadUse(f"{target} takes no arguments, received {given!r}; options of lowtide go before the target")


def require_script(target: str) -> None:
    """What `fit` runs: a whole script, since it goes on after its first step."""
    path, _, factory = target.partition(":")
    if not Path(target).exists() and factory and Path(path).exists():
        raise BadUse(f"{target} is a factory, and fit runs a script; use `lowtide plan` or lowtide.fit_within")
    if path.endswith(".keras"):
        raise BadUse(f"{target} is a saved model, and fit runs a script; use `lowtide plan` or lowtide.fit_within")


def fit_target(
    target: str, arguments: Sequence[str], budget: int, seconds: float, on_plan: Callable[[dict[str, Any]], None]
) -> int:
    """Run the whole script with its step planned, on an allocator that has `budget` bytes and no more.

    `on_plan` is told the plan before training starts. Returns the script's exit code.
    """
    with tempfile.TemporaryDirectory(prefix="lowtide-") as name:
        folder = Path(name)
        limit = budget >> 20
        command, environment = _worker(name, target, arguments, budget=limit << 20, seconds=seconds)
        child = subprocess.Popen(command, env={**environment, LIMIT: str(limit)})
        with passed_on(child):
            code = _let_it_go(child, folder, on_plan)
        if (folder / "answer.json").exists():
            answer = json.loads((folder / "answer.json").read_text())
            raise NoRoomToBegin(answer["error"]) if answer.get("too_early") else _error(
                answer["exit_code"], answer["error"]
            )
        if code < 0:
            hint = f", as TensorFlow may be where the allocator has no more; {LARGER}" if -code in _ABORTS else ""
            raise ScriptFailed(f"{target} was ended by {_cause(code)}{hint}")
        return code


def _let_it_go(
    child: subprocess.Popen[bytes], folder: Path, on_plan: Callable[[dict[str, Any]], None]
) -> int:
    """Show the plan when it is there, let the script train, and wait for its end."""
    try:
        while child.poll() is None and not (folder / "plan.json").exists():
            time.sleep(0.02)
        if (folder / "plan.json").exists():
            on_plan(json.loads((folder / "plan.json").read_text()))
            (folder / "go").touch()
        return child.wait()
    except KeyboardInterrupt:
        pass_on_interrupt(child)
        return child.wait()


_ABORTS = (signal.SIGABRT, signal.SIGSEGV)


def _worker(
    folder: str,
    target: str,
    arguments: Sequence[str],
    budget: int | None = None,
    seconds: float = 0.0,
    batches: Sequence[int] = (),
) -> tuple[list[str], dict[str, str]]:
    request = {
        "target": target, "arguments": list(arguments), "answer": folder, "budget": budget, "seconds": seconds,
        "batches": list(batches), "parent": os.getpid(),
    }  # fmt: skip
    file = Path(folder) / "request.json"
    file.write_text(json.dumps(request))
    return [sys.executable, "-m", "lowtide.tf.worker", str(file)], controlled_environment(folder)


def controlled_environment(folder: str) -> dict[str, str]:
    """`CONTROLLED`, with TensorFlow's and XLA's dumps going to `folder`."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={folder}/xla --xla_dump_hlo_as_text"
    own = {"XLA_FLAGS": flags.strip(), "TF_BFC_MEMORY_DUMP": f"{folder}/allocator"}
    return {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, **CONTROLLED, **own}


def environment_beside(folder: str) -> dict[str, str]:
    """Of a process that finds something out while the script's own goes on: a limit of the script's is not for it."""
    found = {**controlled_environment(folder), "TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    found.pop(LIMIT, None)
    return found


def _error(code: int, message: str) -> LowtideError:
    error = ScriptFailed(message) if code == 1 else LowtideError(message)
    error.exit_code = code
    return error


def _read_answer(folder: Path, target: str, code: int) -> Captured:
    try:
        answer = json.loads((folder / "answer.json").read_text())
    except FileNotFoundError:
        raise ScriptFailed(f"{target} was ended by {_cause(code)} before its first training step") from None
    if answer["exit_code"]:
        raise _error(answer["exit_code"], answer["error"])
    return Captured(load_program(folder / "program.lowtide"), answer["compiler"], answer["in_session"])


def _cause(code: int) -> str:
    if code < 0:
        name = signal.Signals(-code).name
        return f"{name}{' (often the out-of-memory killer)' if name == 'SIGKILL' else ''}"
    return f"exit code {code}"
