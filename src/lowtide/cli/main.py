"""`lowtide COMMAND [options] target [the target's own arguments]`. One file a command; this one only chooses."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

from lowtide import __version__
from lowtide.cli import batch, diff, doctor, fit, plan, predict, report, run
from lowtide.errors import LowtideError

COMMANDS: tuple[ModuleType, ...] = (predict, batch, plan, fit, run, report, diff, doctor)


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line and exits with 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    what = "Know every byte of a TensorFlow training step before it runs, and make it fit."
    top = _Parser(prog="lowtide", description=what)
    top.add_argument("--version", action="version", version=f"lowtide {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    for command in COMMANDS:
        name = command.__name__.rpartition(".")[2]
        sub = commands.add_parser(
            name,
            help=command.HELP,
            description=command.DESCRIPTION,
            epilog=command.EPILOG,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(sub)
        sub.set_defaults(run=command.run)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a letter gets a question mark
    options = parser().parse_args(arguments)
    try:
        code = int(options.run(options))
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except LowtideError as error:
        print(f"lowtide: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # whoever reads has seen enough: `lowtide report --json FILE | head`
        _close_output()
        return 141
    except OSError as error:
        if error.filename is not None:  # no output of ours
            raise
        _close_output()
        print(f"lowtide: the output cannot be written ({error.strerror}); send it elsewhere", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("lowtide: interrupted", file=sys.stderr)
        return 130


def _close_output() -> None:
    """What is left to print goes nowhere, and Python does not try again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    sys.exit(main())
