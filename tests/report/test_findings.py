"""Findings in the terminal."""

from __future__ import annotations

from lowtide.report.findings import MOST, render_findings
from tests.report.recordings import FINDINGS


def test_a_finding_shows_bytes_line_code_holder_and_fix() -> None:
    text = render_findings([dict(FINDINGS[0])], width=200)
    for part in ("problem 6.00 MiB, 1.00 MiB a step", "train.py:4", "kept.append(y)", "held by list", "keep float(y)"):
        assert part in text


def test_names_from_the_script_are_no_markup() -> None:
    hostile = {**FINDINGS[0], "title": "[red]x[/red]", "holder": "[bold]y[/bold]"}
    text = render_findings([hostile], width=200)
    assert "[red]x[/red]" in text and "[bold]y[/bold]" in text


def test_nothing_found_is_said() -> None:
    assert "none" in render_findings([])


def test_more_than_a_screen_of_findings_is_counted() -> None:
    text = render_findings([dict(FINDINGS[0])] * (MOST + 3), width=120)
    assert "and 3 more" in text
