"""`lowtide.measure()` and whatever else watches the process it is in: a Watch on a temporary file, no child."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from lowtide.errors import BadUse
from lowtide.record import Outcome, Recording, Run, Writer, claimed, create_recording, finish_recording, load_recording
from lowtide.record.host import this_machine
from lowtide.tf.counting import USE_BFC, variable
from lowtide.tf.watch import Options, Watch
from lowtide.tf.watched import failed, when_tensorflow_is_ready

_ACTIVE: list[InProcess] = []


def count_cpu_bytes() -> bool:
    """Put the CPU on the allocator that counts, while TensorFlow has not yet started its devices."""
    if variable(USE_BFC):
        return variable(USE_BFC) == "1"
    if "tensorflow" in sys.modules:
        from lowtide.tf.compat_watch import devices_have_started

        if devices_have_started():
            return False
    from lowtide.tf.supervise import has_gpu

    if not has_gpu():
        os.environ[USE_BFC] = "1"
    return True


def _attached(watch: Watch) -> Any:
    from lowtide.tf.attach import attach

    return attach(watch)


class InProcess:
    """Watches this process between `start` and `stop`; one at a time."""

    def __init__(self, file: str | os.PathLike[str] | None = None, detail_steps: int = 2, whole: bool = False) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lowtide-") if file is None else None
        self._file = Path(self._folder.name) / "recording.db" if self._folder else Path(str(file))
        self._claim = contextlib.ExitStack()
        self._options = Options(detail_steps)
        self._whole = whole
        self.watch: Watch | None = None
        self.attachment: Any = None

    def start(self) -> None:
        if _ACTIVE:
            raise BadUse("a measurement inside another one: there is one profiler; let the outer one end first")
        counted = count_cpu_bytes()
        began = time.time()
        script = sys.argv[0] if sys.argv and sys.argv[0] else "python"
        versions = {"python": sys.version.split()[0]}
        run = Run(script, tuple(sys.argv[1:]), str(Path.cwd()), began, this_machine(), versions)
        with contextlib.ExitStack() as claim:
            claim.enter_context(claimed(self._file))
            create_recording(self._file, run)
            self._claim = claim.pop_all()
        self.watch = Watch(Writer(self._file), began, self._options)
        if not counted:
            self.watch.writer.note(
                "the device's bytes were not counted: TensorFlow had started before the measurement; "
                "set TF_CPU_ALLOCATOR_USE_BFC=1 in the environment"
            )
        _ACTIVE.append(self)
        self.watch.start()
        when_tensorflow_is_ready(self._attach)

    def _attach(self) -> None:
        watch = self.watch
        if watch is None or not watch.alive:
            return
        self.attachment = watch.attempt("TensorFlow", lambda: _attached(watch))
        if self._whole and self.attachment is not None:
            self.attachment.record_all()

    def stop(self, error: BaseException | None = None) -> Recording:
        watch = self.watch
        assert watch is not None, "start() comes first"
        _ACTIVE.remove(self)
        outcome = Outcome("done", watch.now, 0) if error is None else failed(watch, error)
        watch.writer.outcome(outcome)
        watch.finish()
        finish_recording(self._file)
        recording = load_recording(self._file)
        self._claim.close()
        if self._folder is not None:
            self._folder.cleanup()
        return recording
