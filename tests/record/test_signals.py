"""What is sent to `lowtide run` reaches the script, and a script does not outlive the command that runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from lowtide.record import load_recording
from tests.processes import ignores_nothing

SAY = """
import os, signal, sys

def say(word):
    os.write(1, str(word).encode() + bytes([10]))  # `print` may be interrupted by itself
"""
SAVES = f"""{SAY}
def save(number, frame):
    say("saved")
    sys.exit(5)

signal.signal(signal.SIGTERM, save)
signal.signal(signal.SIGHUP, lambda *_: say("hup"))
signal.signal(signal.SIGUSR1, lambda *_: say("one"))
signal.signal(signal.SIGUSR2, lambda *_: say("two"))
say(os.getpid())
while True:
    signal.pause()
"""
INTERRUPTED = f"""{SAY}
try:
    say("ready")
    signal.pause()
except KeyboardInterrupt:
    say("interrupted")
    raise
"""
STUBBORN = f"""{SAY}
told = []

def tell(number, frame):
    told.append(number)
    say("not yet" if len(told) < 3 else "well then")
    if len(told) == 3:
        sys.exit(0)

signal.signal(signal.SIGTERM, tell)
say("ready")
while True:
    signal.pause()
"""


def started(folder: Path, script: str) -> subprocess.Popen[str]:
    (folder / "script.py").write_text(script)
    command = [sys.executable, "-m", "lowtide.cli.main", "run", "--out", "run.db", "script.py"]
    own = {**os.environ, "TMPDIR": str(folder / "tmp")}
    (folder / "tmp").mkdir()
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder, stdout=pipe, stderr=pipe, text=True, env=own,
        start_new_session=True,  # without a terminal, wherever the tests run
        preexec_fn=ignores_nothing,
    )  # fmt: skip


def line_of(run: subprocess.Popen[str]) -> str:
    assert run.stdout is not None
    return run.stdout.readline().strip()


def test_an_interrupt_that_is_sent_to_the_command_reaches_the_script(tmp_path: Path) -> None:
    run = started(tmp_path, INTERRUPTED)
    assert line_of(run) == "ready"
    run.send_signal(signal.SIGINT)
    out, err = run.communicate()
    assert out == "interrupted\n"
    assert "KeyboardInterrupt" in err
    assert run.returncode != 0
    assert load_recording(tmp_path / "run.db").outcome is not None


def test_the_scripts_own_handlers_run_and_the_summary_follows(tmp_path: Path) -> None:
    run = started(tmp_path, SAVES)
    line_of(run)
    for number, word in ((signal.SIGUSR1, "one"), (signal.SIGUSR2, "two"), (signal.SIGHUP, "hup")):
        run.send_signal(number)
        assert line_of(run) == word
    run.send_signal(signal.SIGTERM)
    out, err = run.communicate()
    assert (out, run.returncode) == ("saved\n", 5)
    assert "script.py exited with 5 after" in err
    assert load_recording(tmp_path / "run.db").outcome.exit_code == 5
    assert not list((tmp_path / "tmp").iterdir())


def test_a_script_without_a_handler_ends_as_it_would(tmp_path: Path) -> None:
    run = started(tmp_path, "import signal\nprint('ready', flush=True)\nsignal.pause()")
    line_of(run)
    run.send_signal(signal.SIGTERM)
    _, err = run.communicate()
    assert run.returncode == 1
    assert "was ended by SIGTERM" in err


def test_a_script_that_goes_on_is_told_again(tmp_path: Path) -> None:
    run = started(tmp_path, STUBBORN)
    line_of(run)
    for word in ("not yet", "not yet", "well then"):
        run.send_signal(signal.SIGTERM)
        assert line_of(run) == word
    run.communicate()
    assert run.returncode == 0


def test_what_nohup_ignores_stays_ignored(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import signal\nassert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN")
    command = f"trap '' HUP; exec {sys.executable} -m lowtide.cli.main run --out run.db script.py"
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent has died")
def test_a_script_does_not_outlive_a_command_that_is_killed(tmp_path: Path) -> None:
    run = started(tmp_path, SAVES)
    child = psutil.Process(int(line_of(run)))
    run.kill()
    assert line_of(run) == "saved"
    child.wait(60)
    assert not list((tmp_path / "tmp").iterdir())
