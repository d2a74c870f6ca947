"""Arguments that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from lowtide.errors import LowtideError
from lowtide.units import parse_size

TARGETS = """\
target:
  train.py            a script, run unchanged up to its first training step
  module.py:factory   a function that returns a compiled Keras model
  model.keras         a saved, compiled Keras model
Options go before the target; everything after it is the target's own.
"""


def add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", help="train.py, module.py:factory or model.keras")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")


def add_budget(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--budget", type=budget, metavar="SIZE", required=True, help="bytes such as 900MiB, or 80%% of the plain need"
    )


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


def size(text: str) -> int:
    return _checked(parse_size)(text)


def _checked(parse: Callable[[str], int]) -> Callable[[str], int]:
    def checked(text: str) -> int:
        try:
            return parse(text)
        except LowtideError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return checked
