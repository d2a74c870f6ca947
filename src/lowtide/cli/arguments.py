"""Arguments that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from lowtide.errors import BadUse, LowtideError
from lowtide.record import Recording, load_recording
from lowtide.report.files import check_place
from lowtide.units import parse_size

T = TypeVar("T")

TARGETS = """\
target:
  train.py            a script, run unchanged up to its first training step
  module.py:factory   a function that returns a compiled Keras model
  model.keras         a saved, compiled Keras model
Options go before the target; everything after it is the target's own.
"""


def add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", help="train.py, module.py:factory or model.keras")
    add_own_arguments(parser)


def add_own_arguments(parser: argparse.ArgumentParser) -> None:
    """All that follows the target. There need not be any, which not every Python's argparse sees by itself."""
    own = parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")
    own.required = False


def add_budget(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--budget", type=budget, metavar="SIZE", required=True, help="bytes such as 900MiB, or 80%% of the plain need"
    )


def add_page(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--html", type=place, metavar="OUT", help="write one self-contained page as well")
    parser.add_argument(
        "--recording", type=Path, metavar="FILE", help="with --html: what `lowtide run` measured, beside it"
    )


def recording_for(options: argparse.Namespace) -> Recording | None:
    """The recording that the page is to show, read before the long work begins."""
    if options.recording is None:
        return None
    if options.html is None:
        raise BadUse("--recording is for the page; expected --html OUT beside it")
    return load_recording(options.recording)


def place(text: str) -> Path:
    """Where a report may be written, found out before anything runs."""
    return _checked(check_place)(text)


def budget(text: str) -> str:
    """A size or a percentage, checked and left as it is: what it is of is not known yet."""
    _checked(lambda text: parse_size(text, of=100))(text)
    return text


def positive_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above zero")
    return seconds


def positive_whole_number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def whole_number(text: str) -> int:
    if text[:1] == "-" and text[1:].isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is negative; expected a whole number that is not")
    if not text.isdecimal() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of up to nine digits")
    return int(text)


def size(text: str) -> int:
    return _checked(parse_size)(text)


def _checked(parse: Callable[[str], T]) -> Callable[[str], T]:
    def checked(text: str) -> T:
        try:
            return parse(text)
        except LowtideError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked
