"""Every live Python object of some classes, found without Python code running in between. Imports no TensorFlow.

`gc.get_objects()` has all there is in one list, also what another thread is just making: `tuple(generator)` fails with
a SystemError if somebody else refers to the tuple before it is done. So the list is made, searched and gone within one
call of C code, in which no other thread runs; and no garbage is collected meanwhile, since that may run anybody's code.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, compress, repeat
from typing import Any


def of_classes(*classes: type) -> list[Any]:
    """Every live object of these classes and their subclasses that Python's garbage collector knows."""
    return _found(_objects, classes)


def referred_to(*classes: type) -> list[Any]:
    """Objects of these classes that some collected object refers to, more than once if several do: arrays are not
    collected themselves."""
    return _found(_referents, classes)


Lists = Iterator[list[Any]]


def _objects() -> Lists:
    return map(gc.get_objects, (None,))


def _referents() -> Lists:
    return map(gc.get_referents, chain.from_iterable(_objects()))


def _found(lists: Callable[[], Lists], classes: tuple[type, ...]) -> list[Any]:
    collects = gc.isenabled()
    gc.disable()
    try:
        kinds = set(map(type, chain.from_iterable(lists())))
        return _chosen(lists(), frozenset(kind for kind in kinds if issubclass(kind, classes)))
    finally:
        if collects:
            gc.enable()


def _chosen(lists: Lists, kinds: frozenset[type]) -> list[Any]:
    """Stands for `[thing for things in lists for thing in things if type(thing) in kinds]`.

    `tee` and `zip` would not do: parts of them are among the objects, and would refer to the list that they are in, so
    that it stays until garbage is collected.
    """
    twice = chain.from_iterable(map(partial(repeat, times=2), lists))
    belong = map(partial(map, kinds.__contains__), map(partial(map, type), twice))
    return list(chain.from_iterable(map(compress, twice, belong)))
