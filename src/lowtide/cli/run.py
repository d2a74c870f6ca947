"""`lowtide run`: the unmodified script, measured."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from rich.console import Console

from lowtide.cli.arguments import add_own_arguments, place, whole_number
from lowtide.cli.live import LiveLine
from lowtide.diagnose import diagnose, finding_json, parse_limits
from lowtide.errors import LowtideError
from lowtide.remedies import with_simulated_remedies
from lowtide.report.files import write_text
from lowtide.report.findings import findings_view, verified_view
from lowtide.report.html import write_html
from lowtide.report.page_recording import recording_page
from lowtide.report.perfetto import perfetto_trace
from lowtide.report.recording import print_recording
from lowtide.report.recording_json import recording_json
from lowtide.report.words import unjudged_words
from lowtide.runs import run_target
from lowtide.verify import verify

FAILED = 3
"""The exit code when a rule of `--fail-on` is broken, whatever the script's own was."""

HELP = "run the unmodified script and show where its memory went"
DESCRIPTION = (
    "Runs the script in a process of its own, watched: device and host memory over the whole run, every allocation of\n"
    "a few steps. The recording stays in a file, whatever becomes of the script."
)
EPILOG = """\
Options go before the script; everything after it is the script's own. The exit
code is the script's, or 3 when something of --fail-on was found.

target:
  train.py            a script
  -m package.train    a module, as after python -m

examples:
  lowtide run train.py
  lowtide run --out before.db train.py --epochs 3
  lowtide run --html train.html train.py
  lowtide run --fail-on leak,retrace,peak>2GiB train.py
  lowtide run --host tracemalloc train.py    Python's and NumPy's memory by line
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, metavar="FILE", help="the recording (default: NAME.lowtide.db, here)")
    parser.add_argument(
        "--detail-steps", type=whole_number, default=2, metavar="N",
        help="steps to record in full after warm-up, besides those that set the peak (default 2)",
    )  # fmt: skip
    parser.add_argument(
        "--host", choices=("off", "tracemalloc", "memray", "memray-native"), default="off",
        help="who counts Python's and NumPy's memory, by line (default off: each slows the script down)",
    )  # fmt: skip
    parser.add_argument("--html", type=place, metavar="OUT", help="write one self-contained page as well")
    parser.add_argument("--perfetto", type=place, metavar="OUT", help="write a trace for the Perfetto UI as well")
    parser.add_argument(
        "--json", action="store_true",
        help="one JSON object on standard output, findings included; the script's own output goes to standard error",
    )  # fmt: skip
    parser.add_argument(
        "--fail-on", metavar="RULES",
        help="exit with 3 when one of these is found, several with commas: leak, retrace, a rule's id, "
        "device>2GiB (its allocator's peak), host>8GiB (RSS), peak>2GiB (the larger of the two)",
    )  # fmt: skip
    parser.add_argument(
        "--verify", action="store_true",
        help="run again with each change that Lowtide can make itself (batch, recomputation, streaming, watching)",
    )  # fmt: skip
    parser.add_argument("-m", dest="module", action="store_true", help="the target is a module")
    parser.add_argument("target", help="train.py, or a module's name after -m")
    add_own_arguments(parser)


def run(options: argparse.Namespace) -> int:
    limits = parse_limits(options.fail_on) if options.fail_on is not None else None
    console = Console(stderr=True)
    with _output_aside() if options.json else nullcontext(), LiveLine(console) as line:
        ended = run_target(
            options.target, options.arguments, options.out, options.detail_steps, options.host, options.module, line
        )
    print_recording(console, ended.recording, str(ended.file))
    findings = diagnose(ended.recording)
    if not options.module:
        findings = with_simulated_remedies(findings, ended.recording, options.target, options.arguments)
    listed = [finding_json(finding) for finding in findings]
    console.print(findings_view(listed, unjudged_words(ended.recording), str(ended.file)))
    if options.verify:
        with _output_aside():
            checked = list(verify(ended.recording, findings, options.target, options.arguments, options.module))
        console.print(verified_view([one._asdict() for one in checked]))
    try:
        if options.html:
            write_html(recording_page(ended.recording, listed), options.html)
        if options.perfetto:
            write_text(perfetto_trace(ended.recording), options.perfetto)
    except LowtideError as error:  # the exit code stays the script's
        print(f"lowtide: {error}", file=sys.stderr)
    if options.json:
        print(json.dumps(recording_json(ended.recording, listed), indent=2))
    broken = limits.broken(ended.recording, findings) if limits else []
    for line_of_it in broken:
        console.print(f"lowtide: --fail-on: {line_of_it}", markup=False, highlight=False, soft_wrap=True)
    return FAILED if broken else ended.code


@contextmanager
def _output_aside() -> Iterator[None]:
    """Standard output is standard error in here, for children too: what is printed after it is ours alone."""
    sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(own, 1)
        os.close(own)
