"""The summary of a run: one screen, whatever the run was, and names from scripts are text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowtide.program import Source
from lowtide.record import Outcome, Recording, Sample
from lowtide.record.views import by_category, device_peak, fullest_detail, host_lines
from lowtide.report.recording import render_recording
from lowtide.report.words import counted_steps, step_names
from lowtide.units import format_size
from tests.report.recordings import MIB, RECORDINGS, a_detail, a_recording, a_run, killed, without_tensorflow

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


def test_what_python_holds_is_there_by_line_where_it_was_counted() -> None:
    counted = a_recording()
    largest = host_lines(counted)[0]
    text = render_recording(counted, "run.db")
    assert f"Python and NumPy by line after {largest.time:.1f} s" in text
    assert format_size(largest.bytes) in text.partition("Python and NumPy by line")[2]
    assert "Python and NumPy by line" not in render_recording(replace(counted, lines=()), "run.db")


def test_it_says_how_the_run_ended_and_what_to_type_next() -> None:
    assert "SIGKILL" in render_recording(killed(), "run.db")
    text = render_recording(without_tensorflow(), "run.db")
    assert "device peak" not in text
    assert "host peak" in text
    assert "lowtide report run.db --html" in text


def put_together(repeats: int) -> Recording:
    """Each row of the whole one stands for so many steps, but the second, which was recorded in full."""
    recording = a_recording()
    steps = [step if step.detailed else step._replace(repeats=repeats) for step in recording.steps]
    return replace(recording, steps=tuple(steps))


def test_steps_are_numbered_as_they_are_counted_however_many_a_row_stands_for() -> None:
    recording = put_together(100)
    text = render_recording(recording, "run.db")
    assert "1,101 training steps (fit)" in text
    assert "in step 101 of 1,101, at" in text
    assert step_names(recording)[:3] == ["steps 1 to 100", "step 101", "steps 102 to 201"]
    high = replace(recording, steps=(*recording.steps[:-1], recording.steps[-1]._replace(device_peak_bytes=99 * MIB)))
    assert "in steps 1,002 to 1,101 of 1,101, at" in render_recording(high, "run.db")


def test_one_of_a_thing_is_no_plural() -> None:
    assert counted_steps(1, "fit") == "1 training step (fit)"
    assert counted_steps(1, "run") == "1 run (Session)"
    assert counted_steps(1, "call") == "1 call"
    assert counted_steps(2000, "next") == "2,000 dataset elements"


def test_no_space_stands_before_a_comma() -> None:
    recording = a_recording()
    text = render_recording(recording, "run.db")
    assert "RSS at 5.3 s, 8.00 GiB left" in text
    lined = replace(recording, samples=(Sample(1.0, "inside", rss_bytes=MIB, source=Source("/a/b.py", 7)),))
    assert "RSS at 1.0 s b.py:7 " in render_recording(lined, "run.db")


def test_a_line_number_is_never_cut_off() -> None:
    source = Source(f"/home/me/{'a_script_with_a_long_name' * 2}.py", 1234)
    detail = a_detail(line=source)
    sites = [site._replace(layer="mobilenetv2_0.35_64/block_1_pad", source=source) for site in detail.sites]
    text = render_recording(replace(a_recording(), details=(replace(detail, sites=tuple(sites)),)), "run.db")
    rows = text.splitlines()
    assert max(len(row) for row in rows) <= 80
    (peak,) = (number for number, row in enumerate(rows) if "Conv2D of" in row)
    assert ".py:1234" in "".join(row.strip() for row in rows[peak : peak + 3])
    (line,) = (number for number, row in enumerate(rows) if row.startswith("by line"))
    assert "py:1234" in rows[line + 2]
    assert "after warm-up" in " ".join(text.split())


def test_bytes_without_a_line_have_a_row_among_the_lines() -> None:
    text = render_recording(a_recording(), "run.db")
    row = next(row for row in text.splitlines() if "no line of yours" in row)
    assert "8.00 MiB" in row, "the optimizer's state"


def test_what_to_type_next_can_be_pasted() -> None:
    run = replace(a_run("models/my train.py", ("--name", "a b", "--epochs=3")), host_tracer="off")
    text = render_recording(replace(a_recording(leak=MIB), run=run), "/a folder/that/is/quite/long/" + "x" * 60 + ".db")
    lines = text.splitlines()
    assert f" lowtide report '/a folder/that/is/quite/long/{'x' * 60}.db' --html out.html" in lines
    assert " lowtide plan --budget 80% 'models/my train.py' --name 'a b' --epochs=3" in lines
    assert " lowtide run --host tracemalloc 'models/my train.py' --name 'a b' --epochs=3" in text
    module = replace(run, script="-m package.train")
    text = render_recording(replace(a_recording(leak=MIB), run=module), "run.db")
    assert "lowtide run --host tracemalloc -m package.train --name 'a b'" in text
    assert "lowtide plan" not in text


def test_no_plan_is_offered_after_a_run_that_failed() -> None:
    recording = a_recording()
    assert "lowtide plan" in render_recording(recording, "run.db")
    assert "lowtide plan" not in render_recording(killed(), "run.db")
    failed = replace(recording, outcome=Outcome("exception", 5.4, 1, exception="ValueError"))
    assert "lowtide plan" not in render_recording(failed, "run.db")


def test_a_block_that_was_measured_is_no_script_and_has_perhaps_no_file() -> None:
    block = replace(a_recording(leak=MIB), run=replace(a_run(), versions={"python": "3.12.1"}, host_tracer="off"))
    assert "Next" not in render_recording(block, None)
    text = render_recording(block, "run.db")
    assert "lowtide report run.db" in text
    assert "train.py --epochs" not in text
