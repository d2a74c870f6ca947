"""`lowtide COMMAND [options] target [the target's own arguments]`. One file a command; this one only chooses."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from textwrap import fill
from types import ModuleType
from typing import Any, NoReturn

from lowtide import __version__
from lowtide.cli import batch, diff, doctor, fit, plan, predict, report, run
from lowtide.errors import LowtideError

COMMANDS: tuple[ModuleType, ...] = (predict, batch, plan, fit, run, report, diff, doctor)


HELP_WIDTH = 79


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line and exits with 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """An option that there is not, or that comes too late, is named before argparse misses another for it."""
        given = list(sys.argv[1:] if args is None else args)
        position = self._check_options(given)
        missing = [action.option_strings[0] for action in self._actions if action.required and action.option_strings]
        for name in missing:
            if name not in given[:position] and name in given[position:]:
                self.error(f"{name} comes before the target: what follows {given[position]} is its own")
        return super().parse_known_args(given, namespace)

    def _check_options(self, given: Sequence[str]) -> int:
        """Where the options end and the target is."""
        position = 0
        while position < len(given) and given[position].startswith("--") and len(given[position]) > 2:
            name, is_set, _ = given[position].partition("=")
            known = [option for option in self._option_string_actions if option.startswith(name)]
            if not known:
                near = get_close_matches(name, self._option_string_actions, 1)
                self.error(f"no such option: {name}{f' (did you mean {near[0]}?)' if near else ''}")
            has_value = self._option_string_actions[known[0]].nargs != 0
            position += 1 if is_set or not has_value else 2
        return min(position, len(given))


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
            description=fill(command.DESCRIPTION, HELP_WIDTH),
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
