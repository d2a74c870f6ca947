"""A process that the kernel kills says nothing: its parent tells why, and the recording by which line.

The kill is the script's own, and the machine only says that it is full: no test may fill it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lowtide.diagnose import diagnose
from lowtide.record import Outcome, Recording, Sample, load_recording
from lowtide.tf import supervise
from lowtide.tf.supervise import Target, run_target

EATER = """\
import os
import signal
import numpy as np
kept = []
for step in range(40):
    batch = np.ones((1000, 1000))
    for turn in range(3):
        batch = np.tanh(batch)
    kept.append(batch)
os.kill(os.getpid(), signal.SIGKILL)
"""
GIB = 1 << 30


def killed(folder: Path) -> Recording:
    script, out = folder / "eater.py", folder / "run.db"
    script.write_text(EATER)
    assert run_target(Target(str(script)), out, 2, "off").code == 1
    return load_recording(out)


def test_a_kill_on_a_full_machine_is_for_want_of_memory_and_has_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "available_bytes", lambda: supervise.this_machine().memory_bytes // 100)
    recording = killed(tmp_path)
    assert recording.outcome.signal == "SIGKILL" and recording.outcome.out_of_memory
    (found,) = diagnose(recording)
    assert found.id == "out-of-memory" and "were available when it was killed" in found.title
    assert found.source is not None and found.source.line == 9
    assert found.bytes > 200 << 20


def test_a_kill_on_a_machine_with_room_is_not_put_down_to_memory(tmp_path: Path) -> None:
    recording = killed(tmp_path)
    assert recording.outcome.signal == "SIGKILL" and not recording.outcome.out_of_memory
    assert {found.id for found in diagnose(recording)} <= {"host-peak"}  # what the script takes, if a sample saw it


@pytest.mark.parametrize(
    ("sample", "kills", "words"),
    [
        (Sample(1.0, "outside", available_bytes=9 * GIB), 1, "the kernel killed for want of memory"),
        (Sample(1.0, "outside", available_bytes=9 * GIB, cgroup_bytes=round(3.95 * GIB)), 0, "3.95 GiB of 4.00 GiB"),
        (Sample(1.0, "outside", available_bytes=GIB // 8), 0, "128.0 MiB of the machine's 16.00 GiB"),
        (Sample(1.0, "outside", available_bytes=9 * GIB, cgroup_bytes=GIB), 0, ""),
    ],
)
def test_why_it_was_killed(sample: Sample, kills: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = supervise.this_machine()
    monkeypatch.setattr(
        supervise, "this_machine", lambda: replace(machine, memory_bytes=16 * GIB, cgroup_limit_bytes=4 * GIB)
    )
    monkeypatch.setattr(supervise, "oom_kills", lambda: kills)
    outcome = supervise._signalled(Outcome("unknown", 0.0), 9, 2.0, sample, 0)
    assert words in outcome.why
    assert outcome.out_of_memory is bool(words)
