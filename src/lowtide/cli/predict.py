"""`lowtide predict`: what a training step needs, before it runs."""

from __future__ import annotations

import argparse
import json

from rich.console import Console

from lowtide.api import predict_target
from lowtide.cli.arguments import TARGETS, add_page, add_target, positive_whole_number, recording_for, size
from lowtide.report.prediction import prediction_view

HELP = "what a training step needs, before it runs"
DESCRIPTION = (
    "Runs the script up to its first training step, captures that step, and prints the memory it would need.\n"
    "Trains nothing, and nothing that the script does after that point happens."
)
EPILOG = (
    TARGETS
    + """
examples:
  lowtide predict train.py
  lowtide predict --batch 64 train.py --data images/
  lowtide predict --json train.py > memory.json
  lowtide predict --html memory.html --recording train.lowtide.db train.py
"""
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", type=positive_whole_number, metavar="N", help="for this batch, not the script's")
    parser.add_argument("--budget", type=size, metavar="SIZE", help="largest batch for this, not this machine's memory")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    add_page(parser)
    add_target(parser)


def run(options: argparse.Namespace) -> int:
    errors = Console(stderr=True)
    recording = recording_for(options)
    with errors.status(f"running {options.target} up to its first training step"):
        prediction = predict_target(options.target, options.arguments, options.batch, options.budget)
    if options.json:
        print(json.dumps(prediction.to_json(), indent=2))
    else:
        Console().print(prediction_view(prediction.forecast, prediction.title))
    if options.html:
        prediction.save_html(options.html, recording)
    return 0
