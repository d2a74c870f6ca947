"""Questions to a Recording, each checked against a plain reading of its rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowtide.record import CATEGORIES, HostSplit, Outcome, Sample, Step
from lowtide.record.types import INSIDE
from lowtide.record.views import (
    by_category,
    by_layer,
    by_line,
    by_mode,
    category_curve,
    curve,
    device_peak,
    fullest_detail,
    growth,
    host_peak,
    host_split_at_peak,
    main_kind,
    main_steps,
    step_count,
    step_spans,
    timeline_of,
)
from tests.report.recordings import MIB, a_detail, a_recording, without_tensorflow


def step(kind: str, at: float, device: int = 0, peak: int | None = None, repeats: int = 1) -> Step:
    return Step(kind, "model", None, at, at + 1, device, peak, device, False, repeats)


def test_of_details_as_high_the_last_tells_what_the_peak_was_made_of() -> None:
    first, last = a_detail(step=1), a_detail(step=3)
    recording = replace(a_recording(), details=(first, a_detail(step=2, extra=-4096), last))
    peak = device_peak(recording)
    assert fullest_detail(recording) is last
    assert peak is not None
    assert peak.detail is last


def test_the_peak_is_in_the_call_that_reached_it_not_in_what_went_on_around_it() -> None:
    detail = a_detail(step=1)
    around, call = step("next", 0.0, peak=MIB), step("predict", 0.5, peak=detail.peak_bytes)
    recording = replace(a_recording(), steps=(call, around._replace(stop=2.0)), details=(detail,), samples=())
    peak = device_peak(recording)
    assert peak is not None
    assert (peak.step, peak.detail) == (0, detail)
    lower = replace(recording, steps=(call._replace(device_peak_bytes=MIB), recording.steps[1]))
    peak = device_peak(lower)
    assert peak is not None
    assert peak.step == 1


def test_what_trains_counts_as_the_runs_steps_however_much_else_there_is() -> None:
    recording = replace(a_recording(), steps=(*(step("next", float(i)) for i in range(9)), step("fit", 10.0)))
    assert main_kind(recording) == "fit"
    assert [number for number, _ in main_steps(recording)] == [9]


def test_without_training_the_first_kind_that_repeats_counts() -> None:
    recording = replace(a_recording(), steps=(step("predict", 0.0), step("call", 1.0), step("call", 2.0)))
    assert main_kind(recording) == "call"
    assert main_kind(replace(recording, steps=recording.steps[:1])) == "predict"
    assert main_kind(replace(recording, steps=())) is None


def test_what_is_alive_at_the_peak_sums_to_the_peak_by_any_key() -> None:
    detail = a_detail()
    for sums in (by_category(detail), by_layer(detail), by_line(detail), by_mode(detail)):
        assert sum(sums.values()) == detail.peak_bytes
    assert list(by_category(detail)) == list(CATEGORIES)


def test_the_curve_by_category_is_what_is_alive_at_each_event() -> None:
    detail = a_detail()
    for moment, point in enumerate(category_curve(detail)):
        assert point == by_category(detail, moment)


def test_the_peak_is_the_highest_that_anyone_saw_with_the_contents_of_a_step_that_came_near() -> None:
    recording = a_recording()
    detail = fullest_detail(recording)
    assert detail is not None
    near = replace(recording, steps=(*recording.steps, step("fit", 99.0, 0, detail.peak_bytes + 1)), samples=())
    found = device_peak(near)
    assert found is not None
    assert (found.bytes, found.step, found.detail) == (detail.peak_bytes + 1, len(recording.steps), detail)
    far = replace(recording, steps=(step("fit", 99.0, 0, detail.peak_bytes * 2),), samples=())
    found = device_peak(far)
    assert found is not None
    assert (found.bytes, found.detail) == (detail.peak_bytes * 2, None)


def test_what_was_sampled_after_the_end_is_at_the_end_and_its_rss_is_not_the_runs() -> None:
    samples = (
        Sample(1.0, INSIDE, device_peak_bytes=5, rss_bytes=10),
        Sample(2.5, INSIDE, device_peak_bytes=8, rss_bytes=90),
        Sample(2.9, INSIDE, device_peak_bytes=2, rss_bytes=95),
    )
    recording = replace(a_recording(), outcome=Outcome("done", 2.0, 0), samples=samples, steps=(), details=())
    host, device = host_peak(recording), device_peak(recording)
    assert host is not None
    assert device is not None
    assert (host.time, host.rss_bytes) == (1.0, 10)
    assert (device.time, device.bytes) == (2.0, 8)
    assert max(curve(recording, lambda sample: sample.rss_bytes, 10)) == 10
    host = host_peak(replace(recording, samples=samples[1:]))
    assert host is not None
    assert (host.time, host.rss_bytes) == (2.0, 90), "the only one there is"


def test_what_rss_was_made_of_is_told_of_the_run_where_somebody_had_looked() -> None:
    early, late = HostSplit(1.0, None, 10, {"rest": 10}), HostSplit(9.0, None, 90, {"rest": 90})
    recording = replace(a_recording(), splits=(early, late))
    assert host_split_at_peak(recording) == early
    assert host_split_at_peak(replace(recording, splits=(late,))) == late


def test_a_row_stands_for_as_many_steps_as_it_says() -> None:
    steps = (step("fit", 0.0), step("next", 1.0), step("fit", 2.0, repeats=5), step("fit", 3.0))
    recording = replace(a_recording(), steps=steps)
    assert step_spans(recording) == {0: (1, 1), 2: (2, 6), 3: (7, 7)}
    assert step_count(recording) == 7


def test_a_script_without_tensorflow_has_no_device_peak() -> None:
    assert device_peak(without_tensorflow()) is None
    assert fullest_detail(without_tensorflow()) is None


@pytest.mark.parametrize("repeats", [1, 5])
def test_growth_is_by_step_and_leaves_out_warm_up_and_what_happened_once(repeats: int) -> None:
    sizes = [0, 500, 900, 1000, 1000, 1010, 1020, 1030, 9030, 9040, 9050, 9060]
    steps = tuple(step("fit", float(i), size, None, repeats) for i, size in enumerate(sizes))
    found = growth(replace(a_recording(), steps=steps), lambda step: step.device_bytes)
    assert found is not None
    assert found.bytes_per_step == 10 / repeats


def test_growth_of_a_few_steps_is_not_told() -> None:
    steps = tuple(step("fit", float(i), i) for i in range(6))
    assert growth(replace(a_recording(), steps=steps), lambda step: step.device_bytes) is None


def test_a_chart_has_the_highest_of_each_part_and_no_holes() -> None:
    samples = tuple(Sample(time, INSIDE, rss_bytes=size) for time, size in ((0.1, 3), (0.2, 7), (2.5, 4), (9.9, 5)))
    recording = a_recording()
    recording = replace(recording, samples=samples, outcome=replace(recording.outcome, seconds=10.0))
    assert curve(recording, lambda sample: sample.rss_bytes, 5) == [7, 4, 4, 4, 5]


def test_a_detailed_step_lies_beside_a_prediction() -> None:
    detail = a_detail()
    timeline = timeline_of(detail)
    alive = timeline.alive_at(timeline.peak_at)
    assert sum(buffer.bytes for buffer in alive) == timeline.peak == detail.peak_requested_bytes
    assert timeline.chunk_peak == detail.peak_bytes
