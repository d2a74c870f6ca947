"""Children that measure: each in a fresh process on TensorFlow's BFC allocator, one at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

from lowtide.tf.child import CONTROLLED

QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}


def run_child(module: str, *arguments: str, seconds: float = 600, **environment: str) -> dict[str, Any]:
    """The JSON object that `python -m module arguments` prints last, or {"error": its last words}."""
    command = [sys.executable, "-m", module, *arguments]
    with tempfile.TemporaryDirectory(prefix="lowtide-bench-") as folder:
        own = {"TF_BFC_MEMORY_DUMP": f"{folder}/allocator"}
        settings = {**os.environ, **QUIET, **CONTROLLED, **own, **environment}
        try:
            done = subprocess.run(command, env=settings, capture_output=True, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return {"error": f"no answer in {seconds:.0f} s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        words = done.stderr.strip().splitlines()
        return {"error": words[-1] if words else f"exit code {done.returncode}"}
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer
