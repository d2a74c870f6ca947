"""Where reports may be written: known before anything runs, and nobody else's file is overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowtide.cli.main import main
from tests.cli.test_bad_use import refused
from tests.cli.test_report import saved
from tests.report.recordings import a_recording

TARGETS = [
    ("run", "--html", "OUT", "script.py"),
    ("run", "--perfetto", "OUT", "script.py"),
    ("predict", "--html", "OUT", "script.py"),
    ("plan", "--budget", "1GiB", "--html", "OUT", "script.py"),
    ("report", "a.db", "--html", "OUT"),
    ("report", "a.db", "--perfetto", "OUT"),
]
RUNS = "open('ran', 'w')\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text(RUNS)
    saved(a_recording(), tmp_path / "a.db")
    return tmp_path


@pytest.mark.parametrize("command", TARGETS)
@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("nowhere/out", "cannot be written (there is no folder nowhere)"),
        (".", "cannot be written (it is a directory)"),
        ("n" * 300, "cannot be written (File name too long)"),
        ("script.py", "was not made by lowtide; it is left alone"),
        ("a.db", "was not made by lowtide; it is left alone"),
    ],
)
def test_a_place_where_nothing_may_be_written(
    command: tuple[str, ...], place: str, why: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (folder / "a.db").read_bytes()
    assert why in refused(capsys, *(place if word == "OUT" else word for word in command))
    assert not (folder / "ran").exists()
    assert (folder / "script.py").read_text() == RUNS
    assert (folder / "a.db").read_bytes() == before


@pytest.mark.parametrize("form", ["--html", "--perfetto"])
def test_an_empty_file_and_one_of_ours_are_replaced(form: str, folder: Path) -> None:
    (folder / "out").touch()
    for _ in range(2):
        assert main(["report", "a.db", form, "out"]) == 0
    assert (folder / "out").stat().st_size > 1000
    assert main(["report", "a.db", form, "/dev/null"]) == 0


def test_a_page_that_fails_after_the_run_leaves_the_scripts_exit_code(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "taken.py").write_text("open('page.html', 'w').write('mine')\nraise SystemExit(7)\n")
    assert main(["run", "--out", "run.db", "--html", "page.html", "taken.py"]) == 7
    assert "page.html: is there and was not made by lowtide" in capsys.readouterr().err
    assert (folder / "page.html").read_text() == "mine"


def test_a_run_leaves_a_page_and_a_trace_if_asked(folder: Path) -> None:
    (folder / "empty.py").touch()
    assert main(["run", "--out", "run.db", "--html", "page.html", "--perfetto", "trace.json", "empty.py"]) == 0
    assert main(["report", "run.db", "--perfetto", "again.json"]) == 0
    assert (folder / "page.html").stat().st_size > 1000
    assert (folder / "trace.json").read_text() == (folder / "again.json").read_text()
