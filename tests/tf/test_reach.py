"""Looking at every frame and object leaves nothing behind, and takes nothing away."""

from __future__ import annotations

import weakref

from lowtide.tf.places import making_line
from lowtide.tf.reach import Reach


class Thing:
    pass


def test_a_dictionary_of_locals_that_a_function_keeps_is_left_alone() -> None:
    thing = Thing()
    mine = locals()
    Reach(())
    assert mine["thing"] is thing


def test_what_a_function_lets_go_after_the_look_is_gone() -> None:
    thing = Thing()
    seen = weakref.ref(thing)
    Reach(())
    del thing
    assert seen() is None


def test_asking_who_makes_a_thing_keeps_nothing_of_the_one_that_makes_it() -> None:
    seen = []

    class Maker:
        def __init__(self) -> None:
            thing = Thing()
            seen.append(weakref.ref(thing))
            assert making_line(self) is not None
            del thing
            seen.append(seen[0]() is None)

    Maker()
    assert seen[1]
