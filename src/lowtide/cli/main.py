"""`lowtide COMMAND [options] target [the target's own arguments]`. One file a command; this one only chooses."""

from __future__ import annotations

import argparse
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
    options = parser().parse_args(arguments)
    try:
        return int(options.run(options))
    except LowtideError as error:
        print(f"lowtide: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:  # whoever reads has seen enough: `lowtide report --json FILE | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 141
    except KeyboardInterrupt:
        print("lowtide: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
