"""The Perfetto trace keeps the rules of Chrome's trace event format, and holds the recording's numbers."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from lowtide.record import Recording
from lowtide.report.perfetto import perfetto_trace
from tests.report.recordings import RECORDINGS

NEEDED = {
    "M": {"name", "pid", "args"},
    "C": {"name", "pid", "ts", "args"},
    "X": {"name", "pid", "tid", "ts", "dur"},
    "b": {"name", "cat", "id", "pid", "tid", "ts"},
    "e": {"name", "cat", "id", "pid", "tid", "ts"},
    "i": {"name", "pid", "tid", "ts", "s"},
}
"""Phase to the fields that the format asks of it."""


def events_of(name: str) -> list[dict[str, Any]]:
    return events_in(RECORDINGS[name])


def events_in(recording: Recording) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(perfetto_trace(recording))["traceEvents"]
    return found


@pytest.mark.parametrize("name", RECORDINGS)
def test_every_event_has_what_its_phase_needs(name: str) -> None:
    for event in events_of(name):
        assert NEEDED[event["ph"]] <= set(event)
        assert event["ts"] >= 0
        assert event.get("dur", 0) >= 0
        if event["ph"] == "C":
            assert all(type(value) is int for value in event["args"].values())


def test_what_begins_ends_later_under_the_same_id() -> None:
    open_: dict[tuple[str, str], float] = {}
    pairs = 0
    for event in events_of("whole"):
        if event["ph"] == "b":
            assert (event["cat"], event["id"]) not in open_
            open_[event["cat"], event["id"]] = event["ts"]
        elif event["ph"] == "e":
            assert event["ts"] >= open_.pop((event["cat"], event["id"]))
            pairs += 1
    assert not open_
    assert pairs == 7


def nanoseconds_of_slices(events: list[dict[str, Any]], track: int) -> list[tuple[int, int]]:
    """When each slice begins and ends, as Perfetto reads it."""
    slices = [event for event in events if event["ph"] == "X" and event["tid"] == track]
    begins_and_lasts = [(round(1000 * event["ts"]), round(1000 * event["dur"])) for event in slices]
    return sorted((begin, begin + lasts) for begin, lasts in begins_and_lasts)


@pytest.mark.parametrize("track", [1, 2, 3])
def test_slices_of_one_track_do_not_overlap(track: int) -> None:
    """Perfetto nests slices of a track and drops those that overlap without nesting."""
    spans = nanoseconds_of_slices(events_of("whole"), track)
    assert track != 1 or len(spans) == 12
    for (_, stop), (start, _) in pairwise(spans):
        assert start >= stop


def test_what_begins_where_another_ends_is_not_within_it() -> None:
    """Rounded by itself, the first one's duration would end a nanosecond after the second begins."""
    whole = RECORDINGS["whole"]
    edges = (1.0000000006, 2.0000000012, 3.0)
    steps = tuple(whole.steps[0]._replace(start=start, stop=stop) for start, stop in pairwise(edges))
    first, second = nanoseconds_of_slices(events_in(replace(whole, steps=steps)), 1)
    assert first[1] == second[0]


def test_a_slice_ends_with_the_one_that_it_began_in() -> None:
    """Two threads may trace at once: Perfetto would drop what outlives the slice around it."""
    whole = RECORDINGS["whole"]
    (trace,) = whole.traces
    traces = (trace._replace(time=2.0, seconds=1.0), trace._replace(time=2.5, seconds=1.0))
    spans = nanoseconds_of_slices(events_in(replace(whole, traces=traces)), 2)
    assert spans == [(1_000_000_000, 2_000_000_000), (1_500_000_000, 2_000_000_000)]


def test_counters_reach_the_recorded_peak() -> None:
    (detail,) = RECORDINGS["whole"].details
    level: dict[str, int] = defaultdict(int)
    highest = 0
    changes = [event for event in events_of("whole") if event["ph"] == "C" and event["name"].startswith("in detail")]
    at: dict[float, list[dict[str, Any]]] = defaultdict(list)
    for event in changes:
        at[event["ts"]].append(event)
    for moment in sorted(at):
        for event in at[moment]:
            level[event["name"]] = event["args"]["bytes"]
        highest = max(highest, sum(level.values()))
    assert highest == detail.peak_bytes


def test_the_peak_and_the_script_are_named() -> None:
    events = events_of("whole")
    assert any(event["ph"] == "i" and event["name"] == "device peak 24.00 MiB" for event in events)
    assert any(event["name"] == "process_name" and event["args"]["name"] == "train.py" for event in events)
