"""What is read from the user's source."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowtide.diagnose.code import Code
from lowtide.program import Source
from lowtide.record import Recording
from tests.diagnose.examples import FILE, at, recording

TEXT = """\
import argparse
FAST = False
args = argparse.parse_args()
n = 0
def helper(x):
    return [
        x,
        x,
    ]
for step in range(3):
    n = n + 1
    if FAST:
        kept.append(helper(n))
    elif args.mode == "keep" and not FAST:
        kept[step] = helper(n)
    else:
        self.kept += [n]
    if n > 1:
        other.append(n)
"""


def code(**switches: object) -> Code:
    run: Recording = recording(TEXT)
    return Code(Recording(run.run, run.outcome, sources=run.sources, switches={FILE: switches}))  # type: ignore[dict-item]


def lines(found: list[Source]) -> list[int]:
    return [source.line for source in found]


def test_without_switches_every_branch_may_have_run() -> None:
    assert lines(code().puts_into("kept")) == [13, 15, 17]


def test_a_flag_that_is_set_once_kills_the_branch_that_it_forbids() -> None:
    assert lines(code(FAST=False).puts_into("kept")) == [15, 17]
    assert lines(code(FAST=True).puts_into("kept")) == [13]


def test_options_of_argparse_are_switches_too() -> None:
    assert lines(code(FAST=False, **{"args.mode": "keep"}).puts_into("kept")) == [15]
    assert lines(code(FAST=False, **{"args.mode": "drop"}).puts_into("kept")) == [17]


@pytest.mark.parametrize(
    "condition", ['sys.argv[1] == "bad"', '"bad" in sys.argv', 'len(sys.argv) > 1 and sys.argv[-1] != "good"',
                  'sys.argv[1:] == ["bad"]', 'sys.argv[1] in ("bad", "worse")']
)  # fmt: skip
def test_the_command_line_tells_which_branch_ran(condition: str) -> None:
    text = f"import sys\nif {condition}:\n    kept.append(1)\nelse:\n    kept.append(2)\n"
    for argument, line in (("bad", 3), ("good", 5)):
        run = recording(text)
        told = Recording(replace(run.run, arguments=(argument,)), run.outcome, sources=run.sources)
        assert lines(Code(told).puts_into("kept")) == [line]


def test_what_the_command_line_does_not_have_tells_nothing() -> None:
    assert lines(Code(recording("if sys.argv[7] == 'bad':\n    kept.append(1)\n")).puts_into("kept")) == [2]


def test_a_name_that_changes_while_the_program_runs_is_no_switch() -> None:
    assert lines(code(n=0).puts_into("other")) == [19]


def test_a_statement_is_shown_whole_and_a_loop_by_its_head() -> None:
    assert code().text(at(7)) == "return [ x, x, ]"
    assert code().text(at(10)) == "for step in range(3):"


def test_a_function_that_a_loop_calls_runs_in_the_loop() -> None:
    assert code().in_loop(at(7))
    assert code().in_loop(at(11))
    assert not code().in_loop(at(2))


def test_a_file_that_is_no_python_is_read_as_empty() -> None:
    run = recording("this is (no python")
    assert Code(run).puts_into("kept") == []
    assert Code(run).text(at(1)) == "this is (no python"
