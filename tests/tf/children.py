"""Fresh processes for tests: on TensorFlow's counting allocator, or as a user of the command has them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

from lowtide.tf.child import CONTROLLED

ROOT = Path(__file__).resolve().parents[2]
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore", "PYTHONPATH": str(ROOT)}


def run_script(script: str, *arguments: str) -> Any:
    """What `script` prints last, as JSON, from a child whose CPU is on the BFC allocator."""
    with tempfile.TemporaryDirectory(prefix="lowtide-test-") as folder:
        file = Path(folder) / "child.py"
        file.write_text(textwrap.dedent(script))
        dump = {"TF_BFC_MEMORY_DUMP": f"{folder}/allocator"}
        environment = {**os.environ, **QUIET, **CONTROLLED, **dump}
        done = subprocess.run(
            [sys.executable, str(file), *arguments], env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def lowtide(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command as a user runs it."""
    command = [sys.executable, "-m", "lowtide.cli.main", *arguments]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, check=False)
