"""A comparison as people and as programs read it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from lowtide.record import Recording
from lowtide.record.compare import compare
from lowtide.report.diff import diff_json, diff_view
from tests.report.recordings import IMAGE, RECORDINGS, SCRIPT, a_recording
from tests.report.test_prediction import byte_counts

KEYS = {"peaks", "categories", "layers", "lines", "host", "steps", "seconds_a_step"}
DOCUMENT = (Path(__file__).parents[2] / "docs" / "report.md").read_text()


def text_of(before: Recording, after: Recording, width: int = 80) -> str:
    console = Console(width=width, force_terminal=False)
    with console.capture() as captured:
        console.print(diff_view(compare(before, after), ("[b]a.db", "b.db")))
    return captured.get()


def test_the_text_says_what_grew_and_where() -> None:
    text = text_of(a_recording(), a_recording(scale=3))
    assert "[b]a.db" in text
    assert "+18.00 MiB  24.00 MiB  42.00 MiB  device peak" in text
    assert "+18.00 MiB" in text and "activations" in text
    assert SCRIPT in text and IMAGE.split()[0] in text
    assert "train.py:2" in text and "model = build()" in text


@pytest.mark.parametrize("name", RECORDINGS)
@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_text_fits(name: str, width: int) -> None:
    for other in RECORDINGS.values():
        assert max(map(len, text_of(RECORDINGS[name], other, width).splitlines())) <= width


def test_nothing_changed_is_said() -> None:
    assert "the same in both" in text_of(a_recording(), a_recording())


@pytest.mark.parametrize("name", RECORDINGS)
def test_the_json_has_the_documented_keys_and_whole_bytes(name: str) -> None:
    made = json.loads(json.dumps(diff_json(compare(RECORDINGS[name], a_recording(scale=2)))))
    assert set(made) == KEYS
    assert all(f"`{key}`" in DOCUMENT for key in KEYS)
    assert all(type(count) is int for count in byte_counts(made) if count is not None)
    for row in made["peaks"]:
        assert row["grew_bytes"] is None or row["grew_bytes"] == row["after_bytes"] - row["before_bytes"]
