"""The child process of a command: runs the user's script up to its first training step and writes the Program.

Started as `python -m lowtide.tf.worker REQUEST`, REQUEST a JSON file with `target`, `arguments` and `answer`, the
folder to write to. To predict, the process ends right where training would begin, whatever the script had in mind to
do after it: no `finally`, no `atexit`, no checkpoint; script output goes to standard error, since standard output is
the report's. With a `budget` in the request the step is planned and replaced there, and the script goes on.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import runpy
import signal
import sys
import traceback
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import psutil

from lowtide.errors import BadFile, BadUse, LowtideError, NotCapturable, NothingTrains
from lowtide.program import Program, save_program
from lowtide.program.files import require_file
from lowtide.tf.places import hide_our_frames
from lowtide.tf.planning import Planning
from lowtide.tf.refusals import out_of_memory
from lowtide.tf.signals import end_with, hear_an_interrupt_once

CAPTURED, SCRIPT_FAILED, INTERRUPTED = 0, 1, 130


def main(request_file: str) -> NoReturn:
    request = json.loads(Path(request_file).read_text())
    end_with(request["parent"])
    hear_an_interrupt_once()
    folder = Path(request["answer"])
    if request["budget"] is not None:
        _fit(request, folder)
    os.dup2(2, 1)  # whatever the script prints, C++ included, goes to standard error
    try:
        _run_target(request["target"], request["arguments"], folder, tuple(request["batches"]))
        raise NothingTrains(
            f"{request['target']} ended without a training step: no fit or train_on_batch, no tf.function that "
            "computes gradients or assigns variables, no Session.run of a gradient"
        )
    except LowtideError as error:
        _leave(folder, error.exit_code, error=str(error))
    except KeyboardInterrupt:
        _leave_interrupted(folder)
    except SystemExit as error:
        if error.code in (None, 0):
            _leave(folder, NothingTrains.exit_code, error=f"{request['target']} exited before a training step")
        print(error.code if isinstance(error.code, str) else "", file=sys.stderr)
        _leave(folder, SCRIPT_FAILED, error=f"{request['target']} exited with {error.code!r} before a training step")
    except BaseException as error:  # noqa: BLE001  # the script's own failure, shown as Python would show it
        _print_script_traceback(error)
        _leave(folder, SCRIPT_FAILED, error=f"{request['target']} failed before its first training step")


def _fit(request: Mapping[str, Any], folder: Path) -> NoReturn:
    """Run the whole script with its training step planned; its exit code is the process's."""
    path = request["target"]
    try:
        require_file(path, "a script")
    except BadFile as error:
        _leave(folder, error.exit_code, error=str(error))
    try:
        _import_tensorflow(folder)
        from lowtide.tf import compat
        from lowtide.tf.hooks import LayerSources, replace_steps

        compat.grow_allocator(request["budget"])
        sources = LayerSources()
        planning = Planning(folder, request["budget"], request["seconds"], sources.lines)
    except KeyboardInterrupt:
        _leave_interrupted(folder)
    sys.argv = [path, *request["arguments"]]
    sys.path[0] = str(Path(path).resolve().parent)
    try:
        with replace_steps(planning, sources), _noting_refusals(planning):
            runpy.run_path(path, run_name="__main__")
    except LowtideError as error:
        _leave(folder, error.exit_code, error=str(error))
    except SystemExit:
        raise
    except KeyboardInterrupt as error:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # there is nothing left to interrupt
        if planning.interrupted:
            _leave_interrupted(folder)
        _print_script_traceback(error)
        sys.exit(INTERRUPTED)
    except BaseException as error:  # noqa: BLE001  # the script's own failure, shown as Python would show it
        _print_script_traceback(error)
        if out_of_memory(type(error).__name__, str(error)):
            words = f"{path} asked for more than the budget {planning.when_refused()}"
            _leave(folder, SCRIPT_FAILED, error=words, too_early=not planning.planned)
        if planning.refused:  # of which this may be a consequence
            words = f"it had asked for more than the budget {planning.when_refused()}"
            _leave(folder, SCRIPT_FAILED, error=f"{path} failed, and {words}")
        sys.exit(SCRIPT_FAILED)
    if not planning.planned:
        _leave(folder, NothingTrains.exit_code, error=f"{path} ended without a training step")
    sys.exit(0)


def _noting_refusals(planning: Planning) -> AbstractContextManager[None]:
    """Inside the block it is noted when memory is refused, whatever the script makes of it."""
    import tensorflow as tf

    from lowtide.tf.patches import patched

    def noting(original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def init(error: Any, *arguments: Any, **options: Any) -> None:
            planning.refused = True
            original(error, *arguments, **options)

        return init

    return patched(((tf.errors.ResourceExhaustedError, "__init__", noting),))


def _import_tensorflow(folder: Path) -> None:
    """Import TensorFlow without the lines it logs before anyone can tell it not to."""
    shown = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        import keras  # noqa: F401
        import tensorflow  # noqa: F401
    except ImportError as error:
        os.dup2(shown, 2)
        missing = f"TensorFlow and Keras are not here ({error}); install them, or `pip install 'lowtide[cpu]'`"
        _leave(folder, BadUse.exit_code, error=missing)
    finally:
        os.dup2(shown, 2)
        os.close(shown)


def _run_target(target: str, arguments: Sequence[str], folder: Path, asked: tuple[int, ...]) -> None:
    path, _, factory = target.partition(":")
    require_file(path, "a script, module.py:factory, or a saved .keras model")
    _import_tensorflow(folder)
    if path.endswith(".keras"):
        _capture_saved(path, folder, asked)
    elif factory:
        _capture_factory(path, factory, folder, asked)
    else:
        _capture_script(path, arguments, folder, asked)


def _capture_script(path: str, arguments: Sequence[str], folder: Path, asked: tuple[int, ...]) -> None:
    from lowtide.tf.hooks import LayerSources, stop_at_first_step

    sources = LayerSources()
    sys.argv = [path, *arguments]
    sys.path[0] = str(Path(path).resolve().parent)
    with stop_at_first_step(_Capture(folder, sources.lines, asked), sources):
        runpy.run_path(path, run_name="__main__")


def _capture_factory(path: str, name: str, folder: Path, asked: tuple[int, ...]) -> None:
    from lowtide.tf.hooks import LayerSources, stop_at_first_step
    from lowtide.tf.trace import example_batch

    sources = LayerSources()
    sys.path[0] = str(Path(path).resolve().parent)
    capture = _Capture(folder, sources.lines, asked)
    with stop_at_first_step(capture, sources):
        found = runpy.run_path(path, run_name="lowtide_target")
        make = found.get(name)
        if not callable(make):
            known = sorted(key for key, value in found.items() if callable(value) and not key.startswith("_"))
            raise BadUse(f"{path} has no function {name!r}; it has {', '.join(known) or 'none'}")
        model = make()
    capture.model(model, example_batch(model, 32))


def _capture_saved(path: str, folder: Path, asked: tuple[int, ...]) -> None:
    import keras

    from lowtide.tf.trace import example_batch

    if not zipfile.is_zipfile(path):
        raise BadFile(f"{path}: not a saved Keras model (a .keras file is a zip file, and this is none)")
    try:
        model = keras.saving.load_model(path)
    except (ValueError, OSError) as error:
        raise BadFile(f"{path}: not a Keras model that loads here ({str(error).splitlines()[0]})") from None
    _Capture(folder, {}, asked).model(model, example_batch(model, 32))


class _Capture:
    """What to do at the first training step: capture it, write it down, end the process.

    `asked` are the batches that the prediction is for, where they are not the script's own.
    """

    def __init__(self, folder: Path, lines: Mapping[str, Any], asked: tuple[int, ...]) -> None:
        self._asked = asked
        self._folder = folder
        self._dumps = folder / "xla"
        self._lines = lines

    def model(self, model: Any, data: Any) -> NoReturn:
        with _our_failure(traced_by_us=bool(model.run_eagerly)):
            self._model(model, data)

    def function(self, function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> NoReturn:
        with _our_failure():
            self._function(function, arguments, options)

    def session(self, session: Any, fetches: Any, feeds: Mapping[Any, Any]) -> NoReturn:
        with _our_failure():
            self._session(session, fetches, feeds)

    def _model(self, model: Any, data: Any) -> NoReturn:
        from lowtide.tf.rehearse import rehearsed
        from lowtide.tf.trace import Seen, as_if_compiled, capture_model, step_function
        from lowtide.tf.xla import as_compiled

        program = rehearsed(capture_model(model, data, Seen(self._lines, self._asked)), data)
        if model.run_eagerly:
            program = as_if_compiled(program)
        elif model.jit_compile:
            program = as_compiled(program, step_function(model, jit_compile=True), (data,), {}, self._dumps)
        self._write(program, "xla" if model.jit_compile else "")

    def _function(self, function: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> NoReturn:
        from lowtide.tf import compat
        from lowtide.tf.rehearse import rehearsed
        from lowtide.tf.trace import Seen, capture_function
        from lowtide.tf.xla import as_compiled

        step = capture_function(function, arguments, options, Seen(self._lines, self._asked))
        program = rehearsed(step, (arguments, options))
        compiled = compat.is_compiled_by_xla(function)
        if compiled:
            program = as_compiled(program, function, arguments, options, self._dumps)
        self._write(program, "xla" if compiled else "")

    def _session(self, session: Any, fetches: Any, feeds: Mapping[Any, Any]) -> NoReturn:
        from lowtide.tf.rehearse import needs_rehearsal, unanswered
        from lowtide.tf.session import capture_session

        program = capture_session(session, fetches, feeds, self._asked)
        if needs_rehearsal(program):
            why = "a v1 graph is not rehearsed: a loop counts as one trip, an open shape as nothing"
            program = unanswered(program, why)
        self._write(program, "", in_session=True)

    def _write(self, program: Program, compiler: str, in_session: bool = False) -> NoReturn:
        from lowtide.tf import profile

        chunks = program.chunks or profile.chunks()
        save_program(replace(program, chunks=chunks), self._folder / "program.lowtide")
        _leave(self._folder, CAPTURED, compiler=compiler, in_session=in_session)


@contextlib.contextmanager
def _our_failure(traced_by_us: bool = False) -> Iterator[NoReturn]:
    """The script got to its step; what goes wrong from here on is Lowtide's, and is said so.

    Except what the step raises when it is traced, as it would be to train, unless tracing it is our idea.
    """
    from lowtide.tf.scopes import came_of_tracing

    try:
        yield  # type: ignore[misc]  # the body leaves the process, or raises
    except LowtideError:
        raise
    except Exception as error:
        if came_of_tracing(error) and not traced_by_us:
            raise
        traceback.print_exc(file=sys.stderr)
        message = f"the training step was reached but could not be captured ({type(error).__name__}: {error})"
        raise NotCapturable(message.splitlines()[0]) from error
    raise NotCapturable("the training step was reached but not captured")


def _print_script_traceback(error: BaseException) -> None:
    hide_our_frames(error)
    traceback.print_exception(error, file=sys.stderr)


def _leave_interrupted(folder: Path) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _leave(folder, INTERRUPTED, error="interrupted")


def _leave(folder: Path, code: int, **answer: object) -> NoReturn:
    """Write the answer and end at once, workers of the script included."""
    (folder / "answer.json").write_text(json.dumps({"exit_code": code, **answer}))
    sys.stdout.flush()
    sys.stderr.flush()
    for child in psutil.Process().children(recursive=True):
        child.kill()
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1])
