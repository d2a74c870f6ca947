"""`lowtide fit`: the unmodified script trains inside a budget."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from lowtide.api import fit_target
from lowtide.cli.arguments import add_budget, add_target, positive_seconds
from lowtide.report.plan import plan_view

HELP = "run the unmodified script inside a budget"
DESCRIPTION = (
    "Runs the script; its training step is planned to fit the budget, with the same results bit for bit, and\n"
    "TensorFlow's allocator is given the budget and no more."
)
EPILOG = """\
The target is a script here; `lowtide plan` also takes module.py:factory and
model.keras. Options go before the script; everything after it is the script's
own. For a percentage the script is first run up to its first step.

examples:
  lowtide fit --budget 900MiB train.py
  lowtide fit --budget 80% train.py --epochs 3    of what plain TensorFlow needs
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_budget(parser)
    parser.add_argument("--seconds", type=positive_seconds, default=20.0, help="time for planning (default 20)")
    add_target(parser)


def run(options: argparse.Namespace) -> int:
    console = Console(stderr=True)
    title = Path(options.target).name
    return fit_target(
        options.target,
        options.arguments,
        options.budget,
        options.seconds,
        lambda facts: console.print(plan_view(facts, title, options.budget)),
    )
