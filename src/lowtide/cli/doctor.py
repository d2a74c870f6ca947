"""`lowtide doctor`: this machine, as a training process finds it."""

from __future__ import annotations

import argparse
import json

from rich.console import Console

from lowtide.api import examine_machine
from lowtide.report.doctor import doctor_json, doctor_view

HELP = "this machine: devices, allocators, limits, versions, and known memory bugs in them"
DESCRIPTION = (
    "Looks at this machine as a training process would find it: devices and their allocators, RAM, control group\n"
    "and other limits, versions, and what is known to leak or to cost memory on exactly these versions. Says of a\n"
    "GPU what is reserved and by whom, and which switch does what. TensorFlow is asked in a process of its own."
)
EPILOG = """\
examples:
  lowtide doctor
  lowtide doctor --json > machine.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")


def run(options: argparse.Namespace) -> int:
    with Console(stderr=True).status("asking TensorFlow about this machine"):
        checkup = examine_machine()
    if options.json:
        print(json.dumps(doctor_json(checkup), indent=2))
    else:
        Console().print(doctor_view(checkup))
    return 0
