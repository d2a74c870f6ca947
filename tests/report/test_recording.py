"""The summary of a run: one screen, whatever the run was, and names from scripts are text."""

from __future__ import annotations

import pytest

from lowtide.record.views import by_category, device_peak, fullest_detail
from lowtide.report.recording import render_recording
from lowtide.units import format_size
from tests.report.recordings import RECORDINGS, a_recording, killed, without_tensorflow

SCREEN = 45


@pytest.mark.parametrize("name", RECORDINGS)
def test_it_fits_a_screen_of_80_columns(name: str) -> None:
    lines = render_recording(RECORDINGS[name], "run.db").splitlines()
    assert len(lines) <= SCREEN
    assert max(len(line) for line in lines) <= 80


def test_it_says_what_the_views_say() -> None:
    recording = a_recording()
    text = render_recording(recording, "run.db")
    peak, detail = device_peak(recording), fullest_detail(recording)
    assert peak is not None
    assert detail is not None
    assert format_size(peak.bytes) in text
    for category, size in by_category(detail).items():
        assert (f"{category}" in text) == bool(size)
        assert not size or format_size(size) in text


def test_it_says_how_the_run_ended_and_what_to_type_next() -> None:
    assert "SIGKILL" in render_recording(killed(), "run.db")
    text = render_recording(without_tensorflow(), "run.db")
    assert "device peak" not in text
    assert "host peak" in text
    assert "lowtide report run.db --html" in text
