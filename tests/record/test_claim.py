"""One writer a recording: a second one is refused while the first lives, and only then."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lowtide.cli.main import main
from lowtide.errors import BadFile
from lowtide.record import claimed, load_recording

HOLDS = """
import os, signal, sys
from lowtide.record import claimed
with claimed(sys.argv[1]):
    print(os.getpid(), flush=True)
    signal.pause()
"""
WAITS = "print('ready', flush=True)\ninput()\n"


def holder(file: Path) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen([sys.executable, "-c", HOLDS, str(file)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def test_a_holder_that_is_killed_blocks_nobody(tmp_path: Path) -> None:
    file = tmp_path / "run.db"
    process, who = holder(file)
    with pytest.raises(BadFile, match=rf"another run \(process {who}\); give another file") as raised, claimed(file):
        pass
    assert raised.value.exit_code == 2
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with claimed(file):
        assert (tmp_path / "run.db-lock").exists()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_left_to_whoever_writes_the_recording(tmp_path: Path) -> None:
    with claimed(tmp_path / "nowhere" / "run.db"):
        pass


def test_a_second_run_is_refused_and_the_first_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, out = tmp_path / "script.py", tmp_path / "run.db"
    script.write_text(WAITS)
    command = [sys.executable, "-m", "lowtide.cli.main", "run", "--out", str(out), str(script)]
    pipe = subprocess.PIPE
    first = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert first.stdout is not None
    first.stdout.readline()
    assert main(["run", "--out", str(out), str(script)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"is being written by another run (process {first.pid}); give another file with --out" in line
    _, err = first.communicate("\n")
    assert first.returncode == 0, err
    assert load_recording(out).outcome.how == "done"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.db", "script.py"]


def test_a_measured_block_holds_its_file_until_it_ends(tmp_path: Path) -> None:
    code = """
import subprocess, sys
import lowtide
with lowtide.measure("run.db"):
    done = subprocess.run([sys.executable, "-m", "lowtide.cli.main", "run", "--out", "run.db", "empty.py"])
    assert done.returncode == 2
again = subprocess.run([sys.executable, "-m", "lowtide.cli.main", "run", "--out", "run.db", "empty.py"])
assert again.returncode == 0
"""
    (tmp_path / "empty.py").touch()
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
