"""What is sent to a command reaches the script that its worker runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import ignores_nothing

WAITS = """
import os, signal, sys
say = lambda word: os.write(1, word.encode() + bytes([10]))  # `print` may be interrupted by itself
signal.signal(signal.SIGTERM, lambda *_: (say("saved"), sys.exit(5)))
say("ready")
while True:
    signal.pause()
"""


@pytest.mark.parametrize(("command", "code"), [(["fit", "--budget", "100MiB"], 5), (["predict"], 1)])
def test_sigterm_is_the_scripts_affair(command: list[str], code: int, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(WAITS)
    whole = [sys.executable, "-m", "lowtide.cli.main", *command, "script.py"]
    run = subprocess.Popen(whole, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert run.stdout is not None
    assert any(line.strip() == "ready" for line in run.stdout)
    run.send_signal(signal.SIGTERM)
    out, _ = run.communicate()
    assert "saved" in out
    assert run.returncode == code


TRAINS = """
import keras, numpy
model = keras.Sequential([keras.Input((64,)), *(keras.layers.Dense(64, activation="gelu") for _ in range(40))])
model.compile("adam", "mse")
model.fit(numpy.zeros((64, 64), "float32"), numpy.zeros((64, 64), "float32"), verbose=0)
"""


def interrupted(command: list[str], script: str, when: str, folder: Path) -> tuple[int, list[str]]:
    """The exit code, and what is said after the interrupt, which all processes hear of as from a terminal."""
    (folder / "script.py").write_text(script)
    whole = [sys.executable, "-m", "lowtide.cli.main", *command, "script.py"]
    run = subprocess.Popen(
        whole, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        preexec_fn=ignores_nothing,
    )  # fmt: skip
    assert run.stdout is not None
    assert any(line.startswith(when) for line in run.stdout)
    os.killpg(run.pid, signal.SIGINT)
    out, _ = run.communicate()
    return run.returncode, out.splitlines()


def test_an_interrupt_while_planning_is_told_in_a_line(tmp_path: Path) -> None:
    code, said = interrupted(["fit", "--budget", "100MiB"], TRAINS, "lowtide: planning", tmp_path)
    assert (code, said) == (130, ["lowtide: interrupted"])


SAVES = """
import os, time
say = lambda word: os.write(1, word.encode() + bytes([10]))
try:
    say("ready")
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(0.3)  # the command has told of it by now, too
    say("saved")
"""


@pytest.mark.parametrize("command", [["run"], ["fit", "--budget", "100MiB"]])
def test_what_a_script_does_at_an_interrupt_is_not_interrupted_by_the_same_one(
    command: list[str], tmp_path: Path
) -> None:
    _, said = interrupted(command, SAVES, "ready", tmp_path)
    assert said[0] == "saved"


@pytest.mark.parametrize("command", [["fit", "--budget", "100MiB"], ["predict"]])
def test_an_interrupt_while_the_script_runs_shows_at_most_its_own_lines(command: list[str], tmp_path: Path) -> None:
    code, said = interrupted(command, WAITS, "ready", tmp_path)
    assert code == 130
    assert not [line for line in said if "lowtide/tf/" in line]
    assert said[-1] == ("KeyboardInterrupt" if command[0] == "fit" else "lowtide: interrupted")
