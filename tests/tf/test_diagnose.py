"""From a script to its findings, through the command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = """\
import sys
import tensorflow as tf
KEEP = sys.argv[1] == "keep"
outputs = []
w = tf.Variable(tf.ones((256, 256)))
frozen = tf.Variable(tf.ones((256, 256)))
for step in range(20):
    x = tf.random.normal((4096, 256))
    with tf.GradientTape() as tape:
        y = tf.tanh(tf.tanh(x @ frozen) @ w)
    tape.gradient(y, w)
    if KEEP:
        outputs.append(y)
    else:
        outputs.append(float(tf.reduce_mean(y)))
print("the script's own output")
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = folder / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "lowtide.cli.main", "run", "--out", str(folder / "run.db"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


def test_a_list_of_tensors_is_found_with_its_line_and_breaks_the_rule(tmp_path: Path) -> None:
    done = run(tmp_path, "--json", "--fail-on", "leak", "train.py", "keep")
    found: dict[str, Any] = json.loads(done.stdout)
    first = found["findings"][0]
    assert done.returncode == 3
    assert "the script's own output" in done.stderr
    assert (first["id"], first["severity"], first["line"]) == ("tensors-kept", "problem", 13)
    assert first["code"] == "outputs.append(y)"
    assert first["holder"].startswith("outputs (list of 20")
    assert abs(first["bytes_per_step"] - 4096 * 256 * 4) < 0.1 * first["bytes_per_step"]


def test_the_fixed_script_passes(tmp_path: Path) -> None:
    done = run(tmp_path, "--json", "--fail-on", "leak,retrace,peak>8GiB", "train.py", "drop")
    found = json.loads(done.stdout)
    assert done.returncode == 0
    problems = [finding for finding in found["findings"] if finding["severity"] == "problem"]
    assert not [finding for finding in problems if finding["bytes"] > 0.05 * found["host_peak_bytes"]]


def test_a_rule_that_is_none_is_refused_before_anything_runs(tmp_path: Path) -> None:
    done = run(tmp_path, "--fail-on", "leaks", "train.py", "keep")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "run.db").exists()


def test_the_mark_in_a_case_is_never_read(tmp_path: Path) -> None:
    package = Path(__file__).parents[2] / "src" / "lowtide"
    assert not [file for file in package.rglob("*.py") if "CULPRIT" in file.read_text()]
