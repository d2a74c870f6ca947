"""The `--json` of a recording: the documented keys, whole bytes, and numbers that agree with each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lowtide.record import Recording
from lowtide.report.recording_json import recording_json
from tests.report.recordings import FINDINGS, RECORDINGS, a_recording
from tests.report.test_prediction import byte_counts

KEYS = {
    "script", "arguments", "outcome", "steps", "step_kind", "device_peak_bytes", "device_peak_seconds",
    "device_peak_step", "reserved_bytes", "reserved_unused_bytes", "host_peak_bytes", "host_peak_seconds",
    "device_growth_per_step_bytes", "host_growth_per_step_bytes", "detail", "host", "stages", "graphs", "findings",
    "machine", "versions", "environment", "notes",
}  # fmt: skip
DETAIL_KEYS = {
    "step", "reason", "peak_bytes", "requested_peak_bytes", "before_bytes", "after_bytes", "at", "categories", "modes",
    "layers", "lines", "tensors",
}  # fmt: skip
DOCUMENT = (Path(__file__).parents[2] / "docs" / "report.md").read_text()


@pytest.fixture(params=RECORDINGS)
def recording(request: pytest.FixtureRequest) -> Recording:
    return RECORDINGS[request.param]


def test_the_keys_are_the_documented_ones(recording: Recording) -> None:
    made = recording_json(recording)
    assert set(made) == KEYS
    assert made["detail"] is None or set(made["detail"]) == DETAIL_KEYS
    assert all(f"`{key}`" in DOCUMENT for key in KEYS | DETAIL_KEYS)


def test_bytes_are_whole_numbers(recording: Recording) -> None:
    made: Any = json.loads(json.dumps(recording_json(recording, FINDINGS)))
    assert all(type(count) is int for count in byte_counts(made) if count is not None)


def test_categories_layers_and_lines_each_sum_to_the_peak() -> None:
    detail = recording_json(RECORDINGS["whole"])["detail"]
    peak = detail["peak_bytes"]
    assert sum(detail["categories"].values()) == sum(detail["modes"].values()) == peak
    assert sum(row["size_bytes"] for row in detail["layers"]) == peak
    assert sum(row["size_bytes"] for row in detail["lines"]) == peak
    assert sum(row["size_bytes"] for row in detail["tensors"]) == peak


def test_growth_is_what_each_step_adds() -> None:
    made = recording_json(a_recording(leak=4096))
    assert made["device_growth_per_step_bytes"] == made["host_growth_per_step_bytes"] == 4096
    assert recording_json(RECORDINGS["whole"])["device_growth_per_step_bytes"] == 0


def test_a_refused_allocation_says_what_was_asked_for_and_by_whom() -> None:
    outcome = recording_json(RECORDINGS["killed"])["outcome"]
    assert (outcome["signal"], outcome["out_of_memory"]) == ("SIGKILL", True)
    assert outcome["refused"]["requested_bytes"] == 512 << 20
    assert (outcome["refused"]["file"], outcome["refused"]["line"]) == ("/home/me/train.py", 2)
