"""Blocks, cells and tests measured in their own process, without TensorFlow: each in a child process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from lowtide.record.host import HighWater


def python(folder: Path, code: str, *options: str) -> subprocess.CompletedProcess[str]:
    file = folder / "test_code.py"
    file.write_text(textwrap.dedent(code))
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "NO_COLOR": "1"}
    command = [sys.executable, *options, str(file)]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_a_block_has_its_host_peak_before_its_end_and_no_commands_about_a_script(tmp_path: Path) -> None:
    code = """
        import lowtide
        from lowtide.record.views import host_peak

        with lowtide.measure() as m:
            held = bytearray(100 << 20)
        peak = host_peak(m.recording)
        assert peak.time <= m.recording.outcome.seconds
        assert m.host_peak >= 100 << 20
        print(m)
    """
    done = python(tmp_path, code)
    assert done.returncode == 0, done.stderr
    assert "host peak" in done.stdout
    assert "Next" not in done.stdout
    assert "FILE" not in done.stdout


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ('peak_memory("3 potatoes")', "pytest.mark.peak_memory: size '3 potatoes': expected a number"),
        ("peak_memory", "pytest.mark.peak_memory: expected a limit"),
        ('no_leak(steps="many")', "pytest.mark.no_leak: steps 'many': expected a positive whole number"),
        ('no_leak(allow="x")', "pytest.mark.no_leak: size 'x': expected a number"),
    ],
)
def test_a_mark_that_is_misused_gets_one_line(mark: str, said: str, tmp_path: Path) -> None:
    code = f"""
        import pytest

        @pytest.mark.{mark}
        def test_it():
            raise AssertionError("not to be reached")
    """
    options = ("-m", "pytest", "-p", "lowtide.pytest_plugin", "-p", "no:cacheprovider", "--rootdir", str(tmp_path))
    done = python(tmp_path, code, *options)
    assert done.returncode == 1
    between = done.stdout[done.stdout.index("FAILURES") : done.stdout.index("short test summary")]
    _, _, line, _ = between.splitlines()
    assert line.startswith(said)


@pytest.mark.parametrize(("cell", "error"), [("1 / 0", "ZeroDivisionError"), ("1 +* 2", "SyntaxError")])
def test_an_error_of_a_cell_is_shown_once_with_the_measurement_and_stops_what_follows(
    cell: str, error: str, tmp_path: Path
) -> None:
    pytest.importorskip("IPython")
    code = f"""
        from IPython.core.interactiveshell import InteractiveShell

        shell = InteractiveShell.instance(colors="nocolor")
        shell.run_cell("%load_ext lowtide.jupyter")
        result = shell.run_cell("%%lowtide\\n{cell}")
        assert not result.success
    """
    done = python(tmp_path, code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"{error}:") == 1
    assert f"failed with {error} after" in done.stdout
    assert "host peak" in done.stdout


def test_a_cell_shows_its_result_once_and_takes_one_file_at_most(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    code = """
        from IPython.core.interactiveshell import InteractiveShell

        shell = InteractiveShell.instance(colors="nocolor")
        shell.run_cell("%load_ext lowtide.jupyter", store_history=True)
        shell.run_cell("%%lowtide\\n40 + 2", store_history=True)
        assert not shell.run_cell("%%lowtide --bogus x y\\n1").success
    """
    done = python(tmp_path, code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Out[") == 1
    assert "host peak" in done.stdout
    assert "by category" not in done.stdout
    assert done.stderr.count("UsageError: %%lowtide --bogus x y: expected nothing or one file") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["test_code.py"]


def test_what_a_process_had_for_a_moment_is_grown_by() -> None:
    high = HighWater()
    held = bytearray(64 << 20)
    del held
    assert 60 << 20 <= high.grown() < 128 << 20, "the kernel counts in lots of pages"
    assert HighWater().grown() < 32 << 20
