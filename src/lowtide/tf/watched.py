"""The child of `lowtide run`: the user's script as Python would run it, watched.

Started as `python -m lowtide.tf.watched FD`, an open file with the request. TensorFlow is imported when the script
imports it and not before: a script without it stays without it. Output, arguments, exit code, `atexit` and threads are
the script's own.
"""

from __future__ import annotations

import atexit
import gc
import importlib.abc
import importlib.util
import io
import json
import os
import runpy
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any

from lowtide.program import Source
from lowtide.record import Outcome, Refusal, Writer
from lowtide.tf.counting import keep_for_tensorflow, show
from lowtide.tf.places import hide_our_frames, is_users_file
from lowtide.tf.refusals import out_of_memory, refusal_of
from lowtide.tf.signals import end_with, hear_an_interrupt_once
from lowtide.tf.tracers import start_tracer
from lowtide.tf.watch import Options, Watch


def main(request_file: int) -> None:
    with open(request_file) as file:
        request = json.load(file)
    end_with(request["parent"])
    hear_an_interrupt_once()
    keep_for_tensorflow(request["ours"])
    writer = Writer(request["recording"])
    watch = Watch(writer, request["began"], Options(request["detail_steps"], request["host"]))
    stop_tracer = start_tracer(request["host"], watch)
    watch.start()
    when_tensorflow_is_ready(lambda: _attach(watch))
    atexit.register(_leave, watch, stop_tracer)  # registered first, so it runs last
    sys.argv = [request["target"], *request["arguments"]]
    try:
        _run(request["target"], request["module"])
        watch.script_over()
    except SystemExit as error:
        watch.script_over()
        watch.writer.outcome(_exited(watch, error))
        raise
    except BaseException as error:  # noqa: BLE001  # the script's own failure, shown as Python would show it
        watch.writer.outcome(failed(watch, error))
        watch.writer.flush()
        watch.script_over()
        hide_our_frames(error)
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)
    watch.writer.outcome(Outcome("done", watch.now, 0, refusal=watch.refusal))


def _attach(watch: Watch) -> None:
    def attach_it() -> None:
        from lowtide.tf.attach import attach

        attach(watch)
        # What is there by now is the libraries' own. Set apart, each look at all live objects is several times shorter.
        gc.freeze()

    show()
    watch.attempt("TensorFlow", attach_it)
    if change := os.environ.get("LOWTIDE_CHANGE"):
        from lowtide.tf.changes import make_change

        watch.attempt(f"the change {change}", lambda: make_change(change))


def _leave(watch: Watch, stop_tracer: Callable[[], None]) -> None:
    watch.finish()
    stop_tracer()


def _run(target: str, module: bool) -> None:
    """The script as `__main__`, for as long as the process lives: threads and `atexit` functions may look it up."""
    if module:
        sys.path[0] = str(Path.cwd())
        runpy.run_module(target, run_name="__main__", alter_sys=True)
        return
    path = Path(target).absolute()  # as Python has it: `__file__` is absolute, `sys.argv[0]` as it was given
    sys.path[0] = str(path.resolve().parent)
    main_module = ModuleType("__main__")
    main_module.__dict__.update(__file__=str(path), __builtins__=__builtins__, __spec__=None, __cached__=None)
    sys.modules["__main__"] = main_module
    exec(_code(path), main_module.__dict__)


def _code(path: Path) -> CodeType:
    with io.open_code(str(path.resolve())) as file:
        return compile(file.read(), str(path), "exec")


def when_tensorflow_is_ready(action: Callable[[], None]) -> None:
    """Call `action` once, right after TensorFlow has been imported; now, if it has been already.

    Keras imports TensorFlow in its middle, and TensorFlow imports Keras at its end: both have to be whole.
    """
    if "tensorflow" in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _AfterImport({"tensorflow", "keras"}, action))


class _AfterImport(importlib.abc.MetaPathFinder):
    """Finds nothing itself; lets the others find the modules, and acts when they have run."""

    def __init__(self, names: set[str], action: Callable[[], None]) -> None:
        self._waiting, self._action = set(names), action
        self._begun: set[str] = set()
        self._done: set[str] = set()

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if fullname not in self._waiting:
            return None
        self._waiting.remove(fullname)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        original = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            self._begun.add(fullname)
            original(module)
            self._done.add(fullname)
            if "tensorflow" in self._done and self._begun == self._done and self in sys.meta_path:
                sys.meta_path.remove(self)
                self._action()

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]  # of this one loader
        return spec


def _exited(watch: Watch, error: SystemExit) -> Outcome:
    if error.code is None or error.code == 0:
        return Outcome("done", watch.now, 0, refusal=watch.refusal)
    code = error.code if isinstance(error.code, int) else 1
    message = error.code if isinstance(error.code, str) else ""
    line = _line(error.__traceback__)
    return Outcome("exit", watch.now, code, message=message, source=line, refusal=watch.refusal)


def failed(watch: Watch, error: BaseException) -> Outcome:
    """How a run ends that an exception ends."""
    text = str(error)
    line = _line(error.__traceback__)
    refusal: Refusal | None = refusal_of(text, line)
    if refusal is not None and watch.refusal is not None:
        refusal = refusal._replace(time=watch.refusal.time)
    watch.keep(line)
    return Outcome(
        "exception", watch.now, 1, "", type(error).__name__, text[:4000], line, refusal,
        out_of_memory(type(error).__name__, text), "the exception says so" if refusal else "",
    )  # fmt: skip


def _line(trace: TracebackType | None) -> Source | None:
    """The innermost line of the user's code in a traceback."""
    found = None
    for frame, number in traceback.walk_tb(trace):
        if is_users_file(frame.f_code.co_filename):
            found = Source(frame.f_code.co_filename, number)
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]))
