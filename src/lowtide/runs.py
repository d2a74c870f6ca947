"""Real runs, for Python and for the commands: run a script watched, or measure a block of code in this process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from lowtide.errors import BadUse
from lowtide.record import Recording, Sample, claimed, load_recording
from lowtide.record.views import by_category, device_peak, fullest_detail, host_peak, timeline_of
from lowtide.report.recording import render_recording
from lowtide.simulate import Timeline


class Ended(NamedTuple):
    """A run that is over: its recording, the file it is in, and the script's exit code."""

    recording: Recording
    file: Path
    code: int


class Follows(Protocol):
    """Wants to know how a run goes while it goes."""

    def follow(self, file: os.PathLike[str]) -> None: ...

    def __call__(self, sample: Sample) -> None: ...


def run_target(
    target: str,
    arguments: Sequence[str] = (),
    out: Path | None = None,
    detail_steps: int = 2,
    host: str = "off",
    module: bool = False,
    line: Follows | None = None,
) -> Ended:
    """Run a script, or a module as after `python -m`, in a process of its own, and record what it does to memory."""
    from lowtide.tf.supervise import Target, new_recording
    from lowtide.tf.supervise import run_target as supervise

    what = Target(target, tuple(arguments), module)
    file = out or new_recording(what)
    with claimed(file):
        if line is not None:
            line.follow(file)
        ran = supervise(what, file, detail_steps, host, line)
        read = load_recording(file)
    return Ended(replace(read, outcome=ran.outcome, notes=(*read.notes, *ran.notes)), file, ran.code)


class Measurement:
    """What happened to memory inside `with lowtide.measure() as m:`. Everything is there when the block has ended."""

    def __init__(self, file: str | os.PathLike[str] | None = None) -> None:
        self._file = file
        self._watching: Any = None
        self._recording: Recording | None = None

    def __enter__(self) -> Measurement:
        from lowtide.tf.measured import InProcess

        self._watching = InProcess(self._file, whole=True)
        self._watching.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: object) -> None:
        watch = self._watching.watch
        with watch.quiet():  # how the block leaves things, before the last look at everything
            watch.attempt("a sample", watch.sample)
        self._recording = self._watching.stop(error)

    @property
    def recording(self) -> Recording:
        if self._recording is None:
            raise BadUse("the measurement is not over: its results are there after the with block")
        return self._recording

    @property
    def peak(self) -> int | None:
        """The most bytes in use on the device; None where its allocator does not count."""
        found = device_peak(self.recording)
        return found.bytes if found else None

    @property
    def host_peak(self) -> int:
        """The highest RSS."""
        found = host_peak(self.recording)
        return (found.rss_bytes or 0) if found else 0

    @property
    def timeline(self) -> Timeline | None:
        """Every allocation and free, in the form that predictions have."""
        found = fullest_detail(self.recording)
        return timeline_of(found) if found else None

    @property
    def by_category(self) -> dict[str, int]:
        found = fullest_detail(self.recording)
        return by_category(found) if found else {}

    def table(self) -> str:
        """What `lowtide run` prints."""
        return render_recording(self.recording, None if self._file is None else os.fspath(self._file))

    def __str__(self) -> str:
        return self.table()


def measure(file: str | os.PathLike[str] | None = None) -> Measurement:
    """Measure the memory of a block of code in this process; `file` keeps the recording.

        with lowtide.measure() as m:
            model.train_on_batch(x, y)
        print(m.peak, m.by_category)

    Every allocation of the block is recorded, so give it steps, not epochs; `lowtide run` and `MemoryCallback` are for
    whole runs. On a CPU, TensorFlow counts bytes only if told before it starts: the first `measure()` tells it, or
    TF_CPU_ALLOCATOR_USE_BFC=1 in the environment.
    """
    return Measurement(file)
