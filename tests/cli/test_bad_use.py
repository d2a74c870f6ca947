"""What is not meant gets one line on standard error, no traceback, and exit code 2; nothing here needs TensorFlow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lowtide.cli.main import COMMANDS, main

NAMES = [command.__name__.rpartition(".")[2] for command in COMMANDS]
OF_A_STEP = ["predict", "batch", "plan", "fit"]


def lowtide(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lowtide.cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that the command says before it ends with 2."""
    try:
        code = main(arguments)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else -1
    said = capsys.readouterr()
    assert code == 2
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.startswith("lowtide")
    return line


@pytest.mark.parametrize("batch", ["0", "-1", "1.5", "many", "", "1e3", "9" * 5000, "²"])
def test_a_batch_that_is_not_a_positive_whole_number(capsys: pytest.CaptureFixture[str], batch: str) -> None:
    line = refused(capsys, "predict", "--batch", batch, "train.py")
    assert "--batch" in line


@pytest.mark.parametrize("command", OF_A_STEP)
@pytest.mark.parametrize("budget", ["0", "-4GiB", "lots", "", "4 GiBs", "9" * 400])
def test_a_budget_that_is_not_a_size(capsys: pytest.CaptureFixture[str], command: str, budget: str) -> None:
    assert "--budget" in refused(capsys, command, "--budget", budget, "train.py")


def test_a_command_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "predcit", "train.py")
    assert "predcit" in line
    assert "predict" in line


def test_no_command_and_no_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert "COMMAND" in refused(capsys)
    assert "target" in refused(capsys, "predict")


@pytest.mark.parametrize("command", ["predict", "run"])
def test_arguments_of_the_script_are_not_required(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert "are required: target;" in refused(capsys, command)


@pytest.mark.parametrize(("given", "said"), [("-1", "negative"), ("many", "whole number"), ("9" * 12, "nine digits")])
def test_detail_steps_that_are_no_number(capsys: pytest.CaptureFixture[str], given: str, said: str) -> None:
    line = refused(capsys, "run", "--detail-steps", given, "train.py")
    assert "--detail-steps" in line
    assert said in line


def test_a_folder_is_not_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    line = refused(capsys, "run", str(tmp_path))
    assert "is a directory; expected a script" in line


def test_batch_needs_a_budget(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--budget" in refused(capsys, "batch", "train.py")


def test_an_option_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--colour" in refused(capsys, "predict", "--colour", "train.py")


@pytest.mark.parametrize(
    "arguments",
    [("predict", "nowhere.py"), ("predict", "nowhere.py:make"), ("batch", "--budget", "1G", "nowhere.keras")],
)
def test_a_file_that_is_not_there(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = lowtide(*arguments[:-1], str(tmp_path / arguments[-1]))
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "nowhere" in line
    assert "no such file" in line


@pytest.mark.parametrize("target", ["module.py:make_model", "model.keras"])
@pytest.mark.parametrize("command", [("predict",), ("batch", "--budget", "1GiB"), ("plan", "--budget", "1GiB")])
def test_arguments_that_nobody_takes(capsys: pytest.CaptureFixture[str], command: tuple[str, ...], target: str) -> None:
    line = refused(capsys, *command, target, "--batch", "64")
    assert target in line
    assert "'--batch 64'" in line
    assert "before the target" in line


def test_a_folder_is_not_a_script(tmp_path: Path) -> None:
    done = lowtide("predict", str(tmp_path))
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


@pytest.mark.parametrize("command", NAMES)
def test_help_explains_the_command_with_an_example(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    said = capsys.readouterr().out
    assert "example" in said
    assert f"lowtide {command}" in said
    assert ("module.py:factory" in said) == (command in OF_A_STEP)


@pytest.mark.parametrize("arguments", [("report",), ("diff",), ("diff", "one.db"), ("doctor", "train.py")])
def test_too_few_and_too_many_files(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    line = refused(capsys, *arguments)
    assert arguments[0] in line or arguments[-1] in line


@pytest.mark.parametrize("content", [b"", b"not a database", b"SQLite format 3\x00" + b"\xff" * 4096])
def test_a_file_that_is_no_recording(capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "what.db"
    file.write_bytes(content)
    for arguments in (
        ("report", str(file)),
        ("report", str(file), "--html", str(tmp_path / "page.html")),
        ("diff", str(file), str(file)),
        ("predict", "--html", str(tmp_path / "page.html"), "--recording", str(file), "nowhere.py"),
    ):
        assert "what.db" in refused(capsys, *arguments)
    assert "nowhere.db" in refused(capsys, "report", str(tmp_path / "nowhere.db"))
    assert not (tmp_path / "page.html").exists()


def test_one_form_of_a_report_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--json" in refused(capsys, "report", "x.db", "--html", "x.html", "--json")


def test_a_recording_is_for_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--html" in refused(capsys, "predict", "--recording", "x.db", "nowhere.py")


def test_help_names_every_command_and_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    assert all(name in said for name in NAMES)
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.startswith("lowtide ")


def test_options_after_the_script_are_the_scripts_own() -> None:
    from lowtide.cli.main import parser

    options = parser().parse_args(["predict", "--json", "train.py", "--batch", "x", "--help", "-v"])
    assert options.arguments == ["--batch", "x", "--help", "-v"]
    assert options.batch is None


@pytest.mark.parametrize(("typo", "meant"), [("--bugdet", "--budget"), ("--secnods=3", "--seconds")])
def test_an_option_that_is_not_there_is_named_and_one_like_it(
    capsys: pytest.CaptureFixture[str], typo: str, meant: str
) -> None:
    line = refused(capsys, "fit", typo, "80%", "train.py")
    assert f"no such option: {typo.partition('=')[0]} (did you mean {meant}?)" in line


def test_an_option_after_the_target_is_the_targets_own(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, "fit", "--seconds", "3", "train.py", "--budget", "80%")
    assert "--budget comes before the target: what follows train.py is its own" in line


@pytest.mark.parametrize("budget", ["80%", "900MiB"])
def test_fit_takes_a_script_only(capsys: pytest.CaptureFixture[str], tmp_path: Path, budget: str) -> None:
    module = tmp_path / "models.py"
    module.touch()
    assert "is a factory" in refused(capsys, "fit", "--budget", budget, f"{module}:make")
    assert "is a saved model" in refused(capsys, "fit", "--budget", budget, "model.keras")


@pytest.mark.parametrize("command", NAMES)
def test_help_fits_a_terminal_of_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert not [line for line in capsys.readouterr().out.splitlines() if len(line) > 80]
