"""`make demo`: one script, one limit. Plain TensorFlow dies of it, `lowtide fit` trains through it, losses agree."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lowtide.tf.child import CONTROLLED

SCRIPT = Path(__file__).parent.parent / "examples" / "unet.py"
LIMIT_MIB = 180
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore"}


def run(console: Console, title: str, command: list[str], **environment: str) -> str:
    """What the script says at its end: its losses, or what it died of."""
    console.rule(title, align="left")
    settings = {**os.environ, **QUIET, **CONTROLLED, **environment}
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    shown = [line for line in done.stderr.splitlines() if not line.startswith(("I0000", "WARNING: All log", "W0000"))]
    told = [line for line in shown if "OOM when allocating" in line][:1] if done.returncode else shown
    for line in (*told, *done.stdout.splitlines()):
        console.print(line[: console.width], markup=False, highlight=False)
    if done.returncode:
        cause = signal.Signals(-done.returncode).name if done.returncode < 0 else f"exit code {done.returncode}"
        return "died: out of memory" if told else f"died: {cause}"
    return done.stdout.strip().splitlines()[-1]


def main() -> int:
    console = Console(width=100)
    script, limit = str(SCRIPT), str(LIMIT_MIB)
    plain = [sys.executable, script]
    fit = [sys.executable, "-m", "lowtide.cli.main", "fit", "--budget", f"{limit}MiB", script]
    rows = [
        ("plain TensorFlow, no limit", run(console, "plain TensorFlow, no limit", plain)),
        (
            f"plain TensorFlow, {limit} MiB",
            run(console, f"plain TensorFlow, limited to {limit} MiB", plain, TF_CPU_BFC_MEM_LIMIT_IN_MB=limit),
        ),
        (f"lowtide fit, {limit} MiB", run(console, f"lowtide fit --budget {limit}MiB, the same limit", fit)),
    ]
    table = Table(title=f"{SCRIPT.name}, one script", title_justify="left")
    table.add_column("how")
    table.add_column("what came of it")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    survived, died, fitted = (row[1] for row in rows)
    return 0 if died.startswith("died") and fitted == survived else 1


if __name__ == "__main__":
    sys.exit(main())
