"""Findings in the terminal."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from lowtide.record import Outcome
from lowtide.report.findings import MOST, findings_view, render_findings
from lowtide.report.words import unjudged_words
from tests.report.recordings import FINDINGS, a_recording


def test_a_finding_shows_bytes_line_code_holder_and_fix() -> None:
    text = render_findings([dict(FINDINGS[0])], width=200)
    for part in ("problem 6.00 MiB, 1.00 MiB a step", "train.py:4", "kept.append(y)", "held by list", "keep float(y)"):
        assert part in text


def test_names_from_the_script_are_no_markup() -> None:
    hostile = {**FINDINGS[0], "title": "[red]x[/red]", "holder": "[bold]y[/bold]"}
    text = render_findings([hostile], width=200)
    assert "[red]x[/red]" in text and "[bold]y[/bold]" in text


def test_nothing_found_is_said() -> None:
    assert "none: nothing that need not be there" in render_findings([])


def test_a_run_that_broke_off_before_it_repeated_anything_is_not_judged() -> None:
    recording = a_recording()
    broke = replace(recording, outcome=Outcome("exception", 0.3, 1, exception="SyntaxError"), steps=())
    text = render_findings([], unjudged=unjudged_words(broke))
    assert "nothing that need not be there" not in text
    assert "it failed with SyntaxError before it had repeated anything (no step was seen)" in " ".join(text.split())
    assert "(one step was seen)" in unjudged_words(replace(broke, steps=recording.steps[:1]))


def test_a_run_that_repeated_something_or_ended_well_is_judged() -> None:
    recording = a_recording()
    assert unjudged_words(replace(recording, outcome=Outcome("exception", 9.0, 1, exception="KeyError"))) == ""
    assert unjudged_words(replace(recording, steps=())).startswith("growth cannot be judged")


def test_what_is_left_out_names_the_recording() -> None:
    console = Console(width=120)
    with console.capture() as captured:
        console.print(findings_view([dict(FINDINGS[0])] * (MOST + 1), file="my run.db"))
    assert "lowtide report 'my run.db' --json" in captured.get()


def test_more_than_a_screen_of_findings_is_counted() -> None:
    text = render_findings([dict(FINDINGS[0])] * (MOST + 3), width=120)
    assert "and 3 more" in text
