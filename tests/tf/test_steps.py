"""Steps as the hooks count them, on Lowtide's own recorder; no model is trained here."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from lowtide.record import Step, Writer, create_recording, load_recording
from lowtide.record.types import Machine, Run
from lowtide.tf import compat_watch
from lowtide.tf.attach import Attachment
from lowtide.tf.compat_watch import Stats
from lowtide.tf.device import DeviceCounter, Opened
from lowtide.tf.rhythm import SETTLED
from lowtide.tf.step_log import SEVERAL
from lowtide.tf.steps import Steps
from lowtide.tf.watch import Options, Watch
from lowtide.tf.windows import Window

pytestmark = pytest.mark.tensorflow


class Device:
    """Each read tells the highest of the calls since the one before."""

    def __init__(self) -> None:
        self.highest = 0

    def open(self) -> None: ...

    def read(self, reader: str) -> Stats:
        peak, self.highest = self.highest, 0
        return Stats(1, peak, None)


class Model:
    """What the hook asks of a model."""

    name, steps_per_execution = "model", 1


class Nobody:
    """Wants no detailed steps."""

    def begins(self, kind: str, key: object, given: int) -> None: ...

    def tracing(self, key: object) -> None: ...

    def traced(self, key: object, ops: int) -> None: ...

    def waits_for(self, key: object) -> bool:
        return False

    def ends(self, kind: str, key: object, number: int | None, peak: int | None, rss: int = 0) -> bool:
        return False


def test_quick_steps_are_looked_at_together_and_none_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "run.db"
    create_recording(file, Run("x", (), "", 0.0, Machine(1, 1, 1, None), {}, "off", {}))
    device: Any = Device()
    writer = Writer(file)
    steps = Steps(Watch(writer, 0.0, Options()), device, Nobody())
    model = Model()

    def train(bytes_: int) -> int:
        device.highest = max(device.highest, bytes_)
        return bytes_

    calls = 5 * SEVERAL
    run = steps._keras_step("fit", model, train)
    assert [run(number) for number in range(calls)] == list(range(calls))
    steps.finish()
    writer.close()
    recorded = load_recording(file).steps
    assert sum(step.repeats for step in recorded) == calls
    assert max(step.device_peak_bytes or 0 for step in recorded) == calls - 1
    assert all(before.stop <= after.start for before, after in itertools.pairwise(recorded))
    assert [step.repeats for step in recorded[:SEVERAL]] == [1] * SEVERAL
    assert len(recorded) < calls


class Thing:
    """What an eager hook is put on."""

    name = "thing"


class Loop:
    """Eager training as the hooks see it."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "run.db"
        create_recording(self._file, Run("x", (), "", 0.0, Machine(1, 1, 1, None), {}, "off", {}))
        self.device: Any = Device()
        self._writer = Writer(self._file)
        self._steps = Steps(Watch(self._writer, 0.0, Options()), self.device, Nobody())
        self._hooks = {kind: self._steps._eager(kind, "forward", self._do) for kind in ("call", "gradient", "update")}

    def _do(self, thing: Thing, bytes_: int = 0, error: BaseException | None = None) -> None:
        self.device.highest = max(self.device.highest, bytes_)
        if error is not None:
            raise error

    def does(self, kind: str, bytes_: int = 0, error: BaseException | None = None) -> None:
        self._hooks[kind](Thing(), bytes_, error)

    def round(self, bytes_: int = 0) -> None:
        self.does("call", bytes_)
        self.does("gradient")
        self.does("update")

    def recorded(self) -> list[Step]:
        self._steps.finish()
        self._writer.close()
        return list(load_recording(self._file).steps)


def test_a_known_loop_of_eager_calls_is_told_with_its_updates(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    for number in range(2 * SETTLED):
        loop.round(bytes_=number)
    steps = loop.recorded()
    kinds = [step.kind for step in steps]
    assert kinds.count("update") == 2 * SETTLED
    assert kinds[-SETTLED // 2 :] == ["update"] * (SETTLED // 2)
    assert 3 * SETTLED <= kinds.count("call") + kinds.count("gradient") + SETTLED <= 3 * SETTLED + 2
    assert steps[-1].device_peak_bytes == 2 * SETTLED - 1, "what a part has reached is in the update's"


def test_what_leaves_the_rhythm_has_a_record_of_its_own(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    for _ in range(2 * SETTLED):
        loop.round()
    loop.does("call", 700)  # an evaluation: no gradient follows
    loop.does("call", 600)
    loop.round()
    *_, first, second, third, fourth, fifth = loop.recorded()
    assert [step.kind for step in (first, second, third, fourth, fifth)] == ["update", "call", "call", "call", "update"]
    assert (second.device_peak_bytes, third.device_peak_bytes) == (700, 600)
    assert second.source is not None
    assert "test_steps" in second.source.file


def test_a_part_that_fails_is_recorded_where_it_failed(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    for _ in range(2 * SETTLED):
        loop.round()
    loop.does("call")
    with pytest.raises(MemoryError):
        loop.does("gradient", 900, MemoryError())
    last = loop.recorded()[-1]
    assert (last.kind, last.device_peak_bytes) == ("gradient", 900)


class Counting(DeviceCounter):
    """The real books, over a count that the test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.now = Stats(0, 0, None)

    opened = Opened("CPU:0", None, counts=True)  # type: ignore[assignment]

    def open(self) -> None: ...

    def _raw(self) -> Stats:
        return self.now

    def _clear(self) -> None:
        self.now = Stats(self.now.in_use, self.now.in_use, None)


def test_the_first_step_keeps_its_peak_though_a_sample_is_taken_in_the_middle(tmp_path: Path) -> None:
    file = tmp_path / "run.db"
    create_recording(file, Run("x", (), "", 0.0, Machine(1, 1, 1, None), {}, "off", {}))
    device, writer = Counting(), Writer(file)
    device.now = Stats(5, 900, None)  # before any step
    steps = Steps(Watch(writer, 0.0, Options()), device, Nobody())

    def train() -> None:
        device.now = Stats(5, 70, None)
        device.read("sample")

    run = steps._keras_step("fit", Model(), train)
    run()
    steps.finish()
    writer.close()
    assert [step.device_peak_bytes for step in load_recording(file).steps] == [70]


class Mapped(Device):
    """A device that has a map, and nothing on it."""

    def chunks(self) -> list[Any]:
        return []


def test_only_a_profiler_of_the_scripts_own_is_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "run.db"
    create_recording(file, Run("x", (), "", 0.0, Machine(1, 1, 1, None), {}, "off", {}))
    watch = Watch(Writer(file), 0.0, Options())
    owner: Any = Attachment(watch)
    owner.device_counter = Mapped()
    first, second = Window(watch, owner, "first call", 1), Window(watch, owner, "first call", 2)
    profiles = iter([object()])
    monkeypatch.setattr(compat_watch, "start_profile", lambda: next(profiles, None))
    monkeypatch.setattr(compat_watch, "drop_profile", lambda profile: None)
    assert first.open()
    assert not second.open(), "another thread's window is open"
    watch.writer.flush()
    assert load_recording(file).notes == ()
    first.drop()
    assert not second.open(), "the script has the profiler"
    watch.writer.close()
    assert load_recording(file).notes == ("no detailed steps: the script runs TensorFlow's profiler itself",)
