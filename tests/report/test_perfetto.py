"""The Perfetto trace keeps the rules of Chrome's trace event format, and holds the recording's numbers."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

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
    found: list[dict[str, Any]] = json.loads(perfetto_trace(RECORDINGS[name]))["traceEvents"]
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


def test_slices_of_one_track_do_not_overlap() -> None:
    """Perfetto nests slices of a track and drops those that overlap without nesting."""
    tracks: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for event in events_of("whole"):
        if event["ph"] == "X":
            tracks[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    assert len(tracks[1]) == 12
    for spans in tracks.values():
        for (_, stop), (start, _) in zip(sorted(spans), sorted(spans)[1:], strict=False):
            assert start >= stop


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
