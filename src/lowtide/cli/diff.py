"""`lowtide diff`: two recordings, and what grew."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console

from lowtide.record import load_recording
from lowtide.record.compare import compare
from lowtide.report.diff import diff_json, diff_view

HELP = "two recordings, and what grew: by category, layer and line"
DESCRIPTION = (
    "Compares two recordings that `lowtide run` made: peaks, growth a step, and what each category, layer and line of\n"
    "yours held at the peak. A line is the same line when its text is, wherever an edit moved it."
)
EPILOG = """\
examples:
  lowtide diff before.db after.db
  lowtide diff --json before.db after.db > grew.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.add_argument("before", type=Path, metavar="A", help="the recording to compare with")
    parser.add_argument("after", type=Path, metavar="B", help="the recording to look at")


def run(options: argparse.Namespace) -> int:
    comparison = compare(load_recording(options.before), load_recording(options.after))
    if options.json:
        print(json.dumps(diff_json(comparison), indent=2))
    else:
        Console().print(diff_view(comparison, (str(options.before), str(options.after))))
    return 0
