"""`lowtide report` and `lowtide diff` on files: every form of one recording, and what grew between two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lowtide.cli.main import main
from lowtide.record import Recording, Writer, create_recording, finish_recording
from tests.report.recordings import MIB, RECORDINGS, a_recording


def saved(recording: Recording, path: Path) -> str:
    create_recording(path, recording.run)
    writer = Writer(path)
    for rows in (recording.samples, recording.steps, recording.traces, recording.stages, recording.splits):
        writer.add(rows)
    for detail in recording.details:
        writer.add_detail(detail)
    for file, text in recording.sources.items():
        writer.source(file, text)
    writer.outcome(recording.outcome)
    writer.close()
    finish_recording(path)
    return str(path)


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_form_of_a_recording(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, page, trace = saved(RECORDINGS[name], tmp_path / "a.db"), tmp_path / "a.html", tmp_path / "a.json"
    assert main(["report", file]) == 0
    assert "train.py" in capsys.readouterr().out
    assert main(["report", file, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["script"] == "train.py"
    assert main(["report", file, "--html", str(page)]) == main(["report", file, "--perfetto", str(trace)]) == 0
    assert page.read_text().startswith("<!doctype html>")
    assert json.loads(trace.read_text())["traceEvents"]
    assert capsys.readouterr().out == ""


def test_what_grew_between_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = saved(a_recording(), tmp_path / "a.db"), saved(a_recording(scale=3), tmp_path / "b.db")
    assert main(["diff", one, two]) == 0
    assert "+18.00 MiB" in capsys.readouterr().out
    assert main(["diff", "--json", one, two]) == 0
    assert json.loads(capsys.readouterr().out)["categories"][0]["grew_bytes"] == 18 * MIB


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    file = saved(a_recording(), tmp_path / "a.db")
    command = f"{sys.executable} -m lowtide.cli.main report {file} --json | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("{\n", "")


def test_output_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    file = saved(a_recording(), tmp_path / "a.db")
    for form in ([], ["--json"]):
        command = [sys.executable, "-m", "lowtide.cli.main", "report", file, *form]
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert "the output cannot be written (No space left on device)" in line


def test_a_terminal_that_lacks_letters_gets_others(tmp_path: Path) -> None:
    file = saved(a_recording(), tmp_path / "a.db")
    command = [sys.executable, "-m", "lowtide.cli.main", "report", file]
    own = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, env=own, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "train.py" in done.stdout
    assert "?" in done.stdout
