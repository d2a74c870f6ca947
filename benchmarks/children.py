"""Children that measure: each in a fresh process on TensorFlow's BFC allocator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
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


class Server:
    """A child that answers one JSON line with another, each in a fork of its own: TensorFlow is imported once."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lowtide-bench-")
        dump = {"TF_BFC_MEMORY_DUMP": f"{self._folder.name}/allocator"}
        settings = {**os.environ, **QUIET, **CONTROLLED, **dump}
        self._said = Path(self._folder.name, "stderr")
        with self._said.open("w") as stderr:
            pipe = subprocess.PIPE
            command = [sys.executable, "-m", module, *arguments]
            self._child = subprocess.Popen(command, env=settings, stdin=pipe, stdout=pipe, stderr=stderr, text=True)

    def ask(self, **request: Any) -> dict[str, Any]:
        """Its answer; {"error": its last words} when there is none."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._child.stdin.write(json.dumps(request) + "\n")
        self._child.stdin.flush()
        answer: dict[str, Any] = json.loads(self._child.stdout.readline() or "{}")
        if not answer or "error" in answer:
            words = self._said.read_text().strip().splitlines()
            return {"error": words[-1] if words else "no answer"}
        return answer

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait()
        self._folder.cleanup()
