"""`lowtide plan`: what `fit` would do, without training, and the curve of bytes against time."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console

from lowtide.api import plan_target
from lowtide.cli.arguments import TARGETS, add_budget, add_page, add_target, positive_seconds, recording_for
from lowtide.report.plan import curve_view, plan_view

HELP = "what fit would do, and bytes against time over all budgets"
DESCRIPTION = "Captures the script's first training step and plans it for the budget, training nothing."
EPILOG = (
    TARGETS
    + """
examples:
  lowtide plan --budget 900MiB train.py
  lowtide plan --budget 60% train.py
  lowtide plan --budget 60% --html plan.html train.py
"""
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_budget(parser)
    parser.add_argument("--seconds", type=positive_seconds, default=20.0, help="time for each part (default 20)")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    add_page(parser)
    add_target(parser)


def run(options: argparse.Namespace) -> int:
    recording = recording_for(options)
    with Console(stderr=True).status(f"planning {options.target}"):
        answer = plan_target(
            options.target, options.arguments, options.budget, options.seconds, options.html, recording
        )
    if options.json:
        print(json.dumps(answer, indent=2))
        return 0
    console = Console()
    console.print(plan_view(answer, Path(options.target).name))
    console.print()
    console.print(curve_view(answer["curve"], answer["smallest"]))
    return 0
