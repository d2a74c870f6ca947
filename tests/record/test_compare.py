"""Two recordings: what grew, by category, layer and line, wherever an edit moved the line."""

from __future__ import annotations

import pytest

from lowtide.program import Source
from lowtide.record.compare import compare
from tests.report.recordings import CODE, IMAGE, MIB, RECORDINGS, SCRIPT, a_recording

BEFORE, AFTER = a_recording(), a_recording(scale=3, leak=4096)


def test_what_grew_is_named_with_its_bytes() -> None:
    found = compare(BEFORE, AFTER)
    assert [(c.name, c.grew) for c in found.categories] == [("activations", 18 * MIB)]
    assert {c.name: c.grew for c in found.layers} == {SCRIPT: 12 * MIB, IMAGE: 6 * MIB}
    assert [(c.source, c.grew) for c in found.lines] == [(Source("/home/me/train.py", 2), 18 * MIB)]
    peaks = {change.name: change.grew for change in found.peaks}
    assert peaks["device peak"] == 18 * MIB
    assert peaks["device growth a step"] == peaks["host growth a step"] == 4096


def test_the_other_way_round_it_shrank() -> None:
    there, back = compare(BEFORE, AFTER), compare(AFTER, BEFORE)
    assert [c.grew for c in back.peaks] == [-c.grew for c in there.peaks]
    assert [(c.name, c.grew) for c in back.layers] == [(c.name, -c.grew) for c in there.layers]


def test_a_recording_and_itself_have_no_changes() -> None:
    found = compare(BEFORE, BEFORE)
    assert not (found.categories or found.layers or found.lines or found.host)
    assert all(change.grew == 0 for change in found.peaks)


def test_a_line_that_an_edit_moved_is_the_same_line() -> None:
    moved = a_recording(line=Source("/home/me/train.py", 3), code="# a new first line\n" + CODE)
    assert not [c for c in compare(BEFORE, moved).lines if c.code.startswith("model = build()")]
    grown = a_recording(scale=3, line=Source("/home/me/train.py", 3), code="# a new first line\n" + CODE)
    (change,) = (c for c in compare(BEFORE, grown).lines if c.code.startswith("model = build()"))
    assert change.source == Source("/home/me/train.py", 3)
    assert change.grew == 18 * MIB


@pytest.mark.parametrize("name", RECORDINGS)
def test_any_two_recordings_compare(name: str) -> None:
    for other in RECORDINGS.values():
        assert len(compare(RECORDINGS[name], other).peaks) == 5


def test_what_was_not_recorded_is_not_zero() -> None:
    (peak, *_) = compare(BEFORE, RECORDINGS["without tensorflow"]).peaks
    assert peak.after is None


def test_steps_recorded_in_full_do_not_count_for_the_pace() -> None:
    found = compare(BEFORE, BEFORE)
    assert found.steps == (12, 12)
    assert found.seconds_a_step == (pytest.approx(0.3), pytest.approx(0.3))
