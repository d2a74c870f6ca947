"""Lines of chunks that appear while nothing records in full: lowtide.tf.sightings."""

from __future__ import annotations

from lowtide.program import Source
from lowtide.record import Site
from lowtide.tf.sightings import seen
from lowtide.tf.unseen import OTHER, Unseen

FIRST, SECOND = Source("a.py", 1), Source("a.py", 2)
LARGE = 8 << 20


def test_a_chunk_keeps_the_line_where_it_appeared() -> None:
    before = seen({}, {100: LARGE}, FIRST)
    assert before == {100: (LARGE, FIRST)}
    assert seen(before, {100: LARGE, 200: LARGE}, SECOND) == {100: (LARGE, FIRST), 200: (LARGE, SECOND)}


def test_another_chunk_at_the_same_address_has_its_own_line_and_a_small_one_none() -> None:
    before = seen({}, {100: LARGE}, FIRST)
    assert seen(before, {100: 2 * LARGE, 200: 1024}, SECOND) == {100: (2 * LARGE, SECOND)}
    assert seen(before, {}, SECOND) == {}


def test_what_has_no_name_has_the_line_where_it_appeared() -> None:
    site = Site("eager tensor", "", "", FIRST, "", "eager")
    unseen = Unseen({}, [], {}, {}, {100: (LARGE, site)})
    assert unseen.take(100, LARGE).site == OTHER.site._replace(source=FIRST)
    assert unseen.take(100, 2 * LARGE) == OTHER, "another buffer by now"
    constant = OTHER._replace(category="constants", site=OTHER.site._replace(op="c"))
    assert Unseen({}, [(LARGE, constant)], {}, {}, {100: (LARGE, site)}).take(100, LARGE) == constant
