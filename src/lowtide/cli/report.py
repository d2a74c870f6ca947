"""`lowtide report`: a recording again, in any form."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console

from lowtide.cli.arguments import place
from lowtide.diagnose import diagnose, finding_json
from lowtide.record import load_recording
from lowtide.report.files import write_text
from lowtide.report.findings import findings_view
from lowtide.report.html import write_html
from lowtide.report.page_recording import recording_page
from lowtide.report.perfetto import perfetto_trace
from lowtide.report.recording import print_recording
from lowtide.report.recording_json import recording_json
from lowtide.report.words import unjudged_words

HELP = "a recording again: terminal, HTML, JSON, Perfetto"
DESCRIPTION = (
    "Shows what `lowtide run` recorded: in the terminal, as one HTML file that needs no network, as JSON, or as a\n"
    "trace for the Perfetto UI (ui.perfetto.dev, Open trace file)."
)
EPILOG = """\
examples:
  lowtide report train.lowtide.db
  lowtide report train.lowtide.db --html train.html
  lowtide report train.lowtide.db --json > train.json
  lowtide report train.lowtide.db --perfetto train.trace.json
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="a recording that `lowtide run` made")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--html", type=place, metavar="OUT", help="write one self-contained page")
    form.add_argument("--json", action="store_true", help="one JSON object on standard output")
    form.add_argument("--perfetto", type=place, metavar="OUT", help="write a trace for the Perfetto UI")


def run(options: argparse.Namespace) -> int:
    recording = load_recording(options.file)
    if options.perfetto:
        write_text(perfetto_trace(recording), options.perfetto)
        return 0
    findings = [finding_json(finding) for finding in diagnose(recording)]
    if options.json:
        print(json.dumps(recording_json(recording, findings), indent=2))
    elif options.html:
        write_html(recording_page(recording, findings), options.html)
    else:
        print_recording(Console(), recording, str(options.file))
        Console().print(findings_view(findings, unjudged_words(recording), str(options.file)))
    return 0
