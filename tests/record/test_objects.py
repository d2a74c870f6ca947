"""Looking at every object there is disturbs no thread that is making one."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np

from lowtide.tf.objects import of_classes, referred_to

LOOKS = 60


class Thing:
    """Something to be found."""


class Special(Thing):
    pass


def test_objects_of_a_class_and_its_subclasses_are_found() -> None:
    things = [Thing(), Special()]
    assert {id(thing) for thing in of_classes(Thing)} == {id(thing) for thing in things}
    assert of_classes(Special) == [things[1]]


def test_arrays_are_found_by_who_refers_to_them() -> None:
    holder = Thing()
    held = np.ones(7)
    holders = [holder, held]  # what has only numbers and arrays, Python does not collect
    assert any(array is held for array in referred_to(np.ndarray)), holders


def _numbers(count: int) -> Iterator[int]:
    yield from range(count)


def test_a_tuple_that_is_being_made_in_another_thread_is_left_alone() -> None:
    """Whoever refers to a tuple before it is done makes `tuple(generator)` fail with a SystemError."""

    def look() -> None:
        for _ in range(LOOKS):
            of_classes(Thing)
            referred_to(np.ndarray)

    looking = threading.Thread(target=look)
    looking.start()
    while looking.is_alive():
        assert len(tuple(_numbers(3000))) == 3000
    looking.join()
