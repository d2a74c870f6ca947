"""From things that are alive to the names that hold them; looking leaves nothing behind."""

from __future__ import annotations

import functools
import gc
import logging
import types
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from logging.handlers import MemoryHandler
from typing import Any, ClassVar

import numpy as np
import pytest

from lowtide.program import Source
from lowtide.tf.holders import Chain, Chains
from lowtide.tf.reach import Reach


class Thing:
    def __init__(self, size: int = 8) -> None:
        self.data = np.zeros(size)


class Trainer:
    shared: ClassVar[dict[int, Thing]] = {}

    def __init__(self) -> None:
        self.history: dict[str, list[list[Thing]]] = {"grads": []}


TRAINER = Trainer()
QUEUE: deque[tuple[Thing, int]] = deque()
HOOKS: list[Callable[[], Thing]] = []
ERRORS: list[Exception] = []
RUNNING: list[Iterator[int]] = []
ARRAY = np.empty(5, dtype=object)


@functools.cache
def cached(key: int) -> Thing:
    return Thing(key + 1)


def chain_of(things: list[Any]) -> Chain:
    """Of weak references, so that nothing here holds the things; the search itself gets them in a list, as ever."""
    reach = Reach()
    lists = [[ref() for ref in things]]
    return Chains(reach, lists, (lists, *lists), [True]).found[0]


def weak(things: list[Thing]) -> list[Any]:
    return [weakref.ref(thing) for thing in things]


def in_a_dict_of_lists() -> list[Any]:
    TRAINER.history["grads"] = [[Thing(), Thing()] for _ in range(5)]
    return weak([thing for row in TRAINER.history["grads"] for thing in row])


def on_a_class() -> list[Any]:
    Trainer.shared.update({key: Thing() for key in range(5)})
    return weak(list(Trainer.shared.values()))


def in_tuples_of_a_deque() -> list[Any]:
    QUEUE.extend((Thing(), 1) for _ in range(5))
    return weak([thing for thing, _ in QUEUE])


def in_closures() -> list[Any]:
    def hook() -> Callable[[], Thing]:
        thing = Thing()
        return lambda: thing

    HOOKS.extend(hook() for _ in range(5))
    return weak([hook() for hook in HOOKS])


def in_a_cache() -> list[Any]:
    return weak([cached(key) for key in range(5)])


def in_tracebacks() -> list[Any]:
    refs = []

    def fail() -> None:
        thing = Thing()
        refs.append(weakref.ref(thing))
        raise ValueError

    for _ in range(5):
        try:
            fail()
        except ValueError as error:
            ERRORS.append(error)
    return refs


def in_generators() -> list[Any]:
    refs = []

    def turns() -> Iterator[int]:
        thing = Thing()
        refs.append(weakref.ref(thing))
        yield 1
        thing.data += 1

    RUNNING.extend(turns() for _ in range(5))
    for one in RUNNING:
        next(one)
    return refs


def in_an_array_of_objects() -> list[Any]:
    for n in range(5):
        ARRAY[n] = Thing()
    return weak(list(ARRAY))


def remember(thing: Thing, seen: list[Thing] = []) -> None:  # noqa: B006  # the mistake that is looked for
    seen.append(thing)


def in_a_default() -> list[Any]:
    things = [Thing() for _ in range(5)]
    for thing in things:
        remember(thing)
    return weak(things)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (in_an_array_of_objects, "ARRAY (global of test_holders.py)"),
        (in_a_default, "seen (list of 5, default argument of remember)"),
        (in_a_dict_of_lists, "TRAINER.history['grads'] (list of 5"),
        (on_a_class, "Trainer.shared['0'] (dict of 5"),
        (in_tuples_of_a_deque, "QUEUE (deque of 5"),
        (in_closures, "HOOKS closure thing (list of 5"),
        (in_a_cache, "cached['0'] (dict of 5"),
        (in_tracebacks, "ERRORS (list of 5"),
        (in_generators, "RUNNING (list of 5"),
    ],
)
def test_a_chain_begins_at_the_name_that_holds_them(make: Callable[[], list[Any]], name: str) -> None:
    assert chain_of(make()).text.startswith(name)


def test_functions_that_are_kept_say_where_they_were_made() -> None:
    HOOKS.clear()
    chain = chain_of(in_closures())
    assert "each in a function" in chain.text
    made = in_closures.__code__.co_firstlineno + 3
    assert chain.line == Source(__file__, made)


def test_records_of_a_log_say_which_line_logged() -> None:
    things, buffer = [Thing() for _ in range(5)], MemoryHandler(99)
    log = logging.getLogger("test of holders")
    log.addHandler(buffer)
    for thing in things:
        log.warning("%s", thing)
    refs = weak(things)
    del things, thing
    chain = chain_of(refs)
    log.removeHandler(buffer)
    assert "each in a log record" in chain.text
    assert chain.line == Source(__file__, buffer.buffer[0].lineno)


class Ring:
    def __init__(self) -> None:
        self.thing = Thing()
        self.callbacks = [self.tell]

    def tell(self) -> Thing:
        return self.thing


def test_what_only_a_cycle_holds_is_told_by_the_class_that_is_in_it() -> None:
    gc.disable()
    try:
        assert chain_of([weakref.ref(Ring().thing) for _ in range(5)]).text == "Ring.thing (a reference cycle)"
    finally:
        gc.enable()


def test_a_local_of_a_running_function_is_a_name() -> None:
    mine = [Thing() for _ in range(5)]
    assert chain_of(weak(mine)).text == "mine (list of 5, local of test_a_local_of_a_running_function_is_a_name)"


def test_the_latest_of_many_does_not_speak_for_all() -> None:
    kept = []
    for _ in range(5):
        latest = Thing()
        kept.append(latest)
    assert chain_of(weak(kept)).text.startswith("kept (list of 5")
    assert latest is kept[-1]


def test_what_others_hold_is_not_the_latests_name() -> None:
    """Five in a cell that no name of the user's leads to, the last of them in a local too."""
    elsewhere = types.SimpleNamespace(things=[Thing() for _ in range(5)])
    latest, refs = elsewhere.things[-1], weak(elsewhere.things)
    gc.collect()
    hidden = weakref.WeakKeyDictionary({gc: elsewhere})
    del elsewhere
    assert not chain_of(refs).text.startswith("latest")
    assert latest is not None
    assert hidden


def test_looking_keeps_nothing_alive() -> None:
    gc.disable()
    try:
        thing = Thing()
        ref = weakref.ref(thing)
        Reach()
        del thing
        assert ref() is None
    finally:
        gc.enable()
