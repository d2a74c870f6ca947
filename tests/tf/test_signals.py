"""What is sent to a command reaches the script that its worker runs."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

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
