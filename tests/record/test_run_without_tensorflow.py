"""`lowtide run` on scripts that never touch TensorFlow: they run as Python runs them, and TensorFlow stays out."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from lowtide.record import Recording, load_recording


def run(folder: Path, script: str, *arguments: str, options: tuple[str, ...] = ()) -> tuple[
    subprocess.CompletedProcess[str], Recording
]:
    (folder / "script.py").write_text(textwrap.dedent(script))
    command = [sys.executable, "-m", "lowtide.cli.main", "run", "--out", "run.db", *options]
    target = () if "-m" in options else ("script.py",)
    done = subprocess.run([*command, *target, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    return done, load_recording(folder / "run.db")


def test_it_runs_as_main_with_its_arguments_and_without_tensorflow(tmp_path: Path) -> None:
    script = """
        import atexit, os, sys

        assert __name__ == "__main__" and __file__ == os.path.abspath("script.py")
        assert sys.modules["__main__"].__dict__ is globals()
        print(sys.argv, file=sys.stdout)
        print("an error", file=sys.stderr)
        atexit.register(lambda: print("atexit", "tensorflow" in sys.modules, sys.modules["__main__"].__name__))
        held = bytearray(64 << 20)
    """
    done, recording = run(tmp_path, script, "--host", "x", "--", "-m")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["['script.py', '--host', 'x', '--', '-m']", "atexit False __main__"]
    assert "an error" in done.stderr
    assert recording.outcome.how == "done"
    assert recording.steps == recording.details == ()
    assert max(sample.rss_bytes or 0 for sample in recording.samples) > 64 << 20
    assert recording.run.arguments == ("--host", "x", "--", "-m")


@pytest.mark.parametrize(
    ("ending", "code", "how"),
    [("sys.exit()", 0, "done"), ("sys.exit(7)", 7, "exit"), ("sys.exit('no')", 1, "exit"), ("os._exit(4)", 4, "exit")],
)
def test_the_exit_code_is_the_scripts(ending: str, code: int, how: str, tmp_path: Path) -> None:
    done, recording = run(tmp_path, f"import os, sys\n{ending}")
    assert done.returncode == code
    assert (recording.outcome.how, recording.outcome.exit_code) == (how, code)


def test_an_exception_is_shown_as_python_shows_it_and_recorded(tmp_path: Path) -> None:
    done, recording = run(tmp_path, "def f():\n    raise ValueError('mine')\n\nf()\n")
    assert done.returncode == 1
    trace = done.stderr[: done.stderr.index("ValueError: mine")]
    assert "script.py" in trace
    assert "lowtide" not in trace
    assert (recording.outcome.exception, recording.outcome.message) == ("ValueError", "mine")
    assert recording.outcome.source is not None
    assert recording.outcome.source.line == 2
    assert list(recording.sources.values()) == [(tmp_path / "script.py").read_text()]


def test_a_signal_is_one_line_of_the_summary_and_exit_code_1(tmp_path: Path) -> None:
    done, recording = run(tmp_path, "import os\nos.kill(os.getpid(), 15)")
    assert done.returncode == 1
    assert (recording.outcome.how, recording.outcome.signal) == ("signal", "SIGTERM")
    assert "was ended by SIGTERM" in done.stderr


def test_a_disk_without_room_costs_rows_and_not_the_run(tmp_path: Path) -> None:
    """No file may grow beyond a size: what the script's own text needs, kept for the exception's line, is more."""
    room, text = 250_000, "#" * 400_000
    script = tmp_path / "script.py"
    script.write_text(f"{text}\nprint('whole')\nraise ValueError\n")
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room}));"
    command = f"{limited} from lowtide.cli.main import main; exit(main(['run', '--out', 'run.db', 'script.py']))"
    done = subprocess.run([sys.executable, "-c", command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "whole\n"), done.stderr
    recording = load_recording(tmp_path / "run.db")
    assert (recording.outcome.how, recording.outcome.exception) == ("exception", "ValueError")
    assert "lost: the recording could not be written (disk I/O error)" in recording.notes[0]
    assert "give --out on another disk" in " ".join(done.stderr.split())


def test_a_module_runs_with_its_relative_imports(tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "words.py").write_text("WORDS = 'relative'")
    (package / "train.py").write_text("from .words import WORDS\nprint(WORDS, __name__)")
    done, recording = run(tmp_path, "", "package.train", "x", options=("-m",))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "relative __main__\n"
    assert recording.run.script == "-m package.train"


COUNTED = """
    import numpy as np
    kept = [np.ones(1 << 20) for _ in range(4)]
"""


@pytest.mark.parametrize(("tracer", "kind"), [("tracemalloc", "numpy"), ("memray", "malloc")])
def test_numpy_arrays_are_counted_by_line(tracer: str, kind: str, tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    pytest.importorskip(tracer)
    done, recording = run(tmp_path, COUNTED, options=("--host", tracer))
    assert done.returncode == 0, done.stderr
    largest = max(recording.lines, key=lambda line: line.bytes)
    assert (largest.kind, largest.source.line) == (kind, 3)
    assert 4 << 23 <= largest.bytes <= (4 << 23) + 65536
    assert recording.run.host_tracer == tracer


def test_what_cannot_be_run_is_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lowtide.cli.main", "run"]
    missing = subprocess.run([*command, "nowhere.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert missing.returncode == 2
    assert len(missing.stderr.splitlines()) == 1
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "script.py").touch()
    taken = subprocess.run(
        [*command, "--out", "notes.txt", "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert taken.returncode == 2
    assert len(taken.stderr.splitlines()) == 1
    assert (tmp_path / "notes.txt").read_text() == "mine"
