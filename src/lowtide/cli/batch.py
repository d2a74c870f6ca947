"""`lowtide batch`: the largest batch that fits a budget."""

from __future__ import annotations

import argparse
import json
import sys

from rich.console import Console

from lowtide.api import predict_target
from lowtide.cli.arguments import TARGETS, add_target, size
from lowtide.errors import BadUse
from lowtide.units import format_size

HELP = "the largest batch that fits a budget"
DESCRIPTION = "Captures the script's first training step and works out the largest batch that fits the budget."
EPILOG = (
    TARGETS
    + """
example:
  lowtide batch --budget 4GiB train.py
"""
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--budget", type=size, metavar="SIZE", required=True, help="bytes, such as 4GiB or 900MB")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    add_target(parser)


def run(options: argparse.Namespace) -> int:
    with Console(stderr=True).status(f"running {options.target} up to its first training step"):
        prediction = predict_target(options.target, options.arguments, budget=options.budget)
    forecast = prediction.forecast
    if forecast.largest_batch is None:
        raise BadUse(f"{options.target} trains at one batch size only; its batch cannot be chosen")
    if options.json:
        answer = prediction.to_json()
        keys = ("largest_batch", "budget_bytes", "fixed_bytes", "per_sample_bytes", "batch", "versions")
        print(json.dumps({key: answer[key] for key in keys}, indent=2))
        return 0
    if not forecast.largest_batch:
        at_one = format_size(forecast.fixed + (forecast.per_sample or 0))
        budget = format_size(options.budget)
        print(f"lowtide: no batch fits in {budget}; a batch of 1 needs about {at_one}", file=sys.stderr)
        return 3
    law = f"{format_size(forecast.fixed)} + {format_size(forecast.per_sample or 0)} x batch"
    print(f"{forecast.largest_batch} is the largest batch in {format_size(options.budget)} ({law})")
    return 0
