"""The live line: on a terminal's last row, from a recording that is being written, and gone when the run is over."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from rich.console import Console

from lowtide.cli import live
from lowtide.cli.live import LiveLine
from lowtide.record import Sample, Step, Writer, create_recording
from lowtide.record.live import Live
from lowtide.record.types import INSIDE, OUTSIDE
from tests.report.recordings import a_run

MIB = 1 << 20


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Eight steps, each a MiB larger than the one before."""
    file = tmp_path / "run.db"
    create_recording(file, a_run())
    writer = Writer(file)
    for number in range(8):
        size = (100 + number) * MIB
        writer.add([Step("fit", "model", None, float(number), number + 0.5, size, size, size)])
        writer.add([Sample(number + 0.5, INSIDE, number, size // 10, size // 5)])
    writer.close()
    return file


END = "end of what was written"


def drawn(file: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool, width: int = 120) -> str:
    monkeypatch.setattr(live, "SECONDS", -1.0)
    master, slave = os.openpty()
    with os.fdopen(master, "rb", buffering=0) as screen, os.fdopen(slave, "w") as output:
        console = Console(file=output, force_terminal=terminal, width=width, height=30)
        with LiveLine(console) as line:
            line.follow(file)
            line(Sample(9.0, OUTSIDE, rss_bytes=500 * MIB))
            line(Sample(9.5, OUTSIDE, rss_bytes=400 * MIB))
        os.write(slave, END.encode())
        said = ""
        while END not in said:  # a terminal hands on what is written to it when it likes
            said += screen.read(65536).decode()
    return said.removesuffix(END)


def test_it_shows_steps_bytes_now_and_at_the_most_and_growth(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = re.sub(r"\x1b\[[\d;]*m", "", drawn(recording, monkeypatch, terminal=True))
    assert "step 8" in said
    assert "device 10.70 MiB (peak 21.40 MiB)" in said
    assert "host 400.0 MiB (peak 500.0 MiB)" in said
    assert "+1.00 MiB/step" in said


def test_all_of_it_is_there_in_eighty_columns(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = re.sub(r"\x1b\[[\d;]*m", "", drawn(recording, monkeypatch, terminal=True, width=80))
    assert "step 8  device 10.7M/21.4M  host 400M/500M  +1.00M/step" in said


def test_the_scripts_rows_scroll_above_it_and_the_terminal_is_given_back(
    recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = drawn(recording, monkeypatch, terminal=True)
    assert said.index("\x1b[1;29r") < said.index("\x1b[30;1H") < said.index("\x1b[1;30r")
    assert said.count("\x1b7") == said.count("\x1b8")


def test_it_says_nothing_where_there_is_no_terminal(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert drawn(recording, monkeypatch, terminal=False) == ""


def test_a_file_that_cannot_be_read_leaves_the_line_as_it_was(tmp_path: Path) -> None:
    state = Live(tmp_path / "nowhere.db").read(Sample(1.0, OUTSIDE, rss_bytes=7))
    assert (state.latest, state.steps, state.peaks) == (None, 0, (0, 7))
