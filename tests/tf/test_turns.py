"""Branches that a counter chooses: which one each step takes is known before it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lowtide.program import Program
from tests.tf.test_capture import dense, program_of, step_of

pytestmark = pytest.mark.tensorflow


def turns_of(program: Program) -> list[tuple[int, ...]]:
    return [op.turns for op in program.ops if op.kind in ("If", "StatelessIf")]


def trained(optimizer: Any) -> Program:
    return program_of(dense(32, 4), np.zeros([6, 8], "f"), np.zeros([6, 4], "f"), optimizer=optimizer)


def test_weights_are_overwritten_with_their_averages_every_tenth_step() -> None:
    program = trained(keras.optimizers.SGD(use_ema=True, ema_overwrite_frequency=10))
    assert turns_of(program) == [(1,) * 9 + (0,)]
    assert not [note for note in program.notes if note.treatment == "bounded"]


def test_accumulated_gradients_are_applied_every_fourth_step_from_where_the_counter_is() -> None:
    optimizer = keras.optimizers.Adam(gradient_accumulation_steps=4)
    assert turns_of(trained(optimizer)) == [(1, 1, 1, 0)]
    later = keras.optimizers.Adam(gradient_accumulation_steps=4)
    later._iterations.assign(2)
    assert turns_of(trained(later)) == [(1, 0, 1, 1)]


def test_what_comes_later_than_is_played_is_not_taken_for_known() -> None:
    program = trained(keras.optimizers.SGD(use_ema=True, ema_overwrite_frequency=100))
    assert turns_of(program) == [()]
    assert [note.treatment for note in program.notes] == ["bounded"]


def counting(choose: Callable[[Any], Any], late: bool = False, twice: bool = False, data: bool = False) -> Program:
    """A step of its own making that counts and branches."""
    count, weight = tf.Variable(0, dtype=tf.int64), tf.Variable(tf.ones([8]))

    def step(x: Any) -> Any:
        read = None if late else count.read_value()
        count.assign_add(1 if not data else tf.cast(tf.reduce_sum(x), tf.int64))
        if twice:
            count.assign_add(1)
        chosen = choose(count.read_value() if read is None else read)
        return tf.cond(chosen, lambda: tf.reduce_sum(x * weight), lambda: tf.reduce_sum(tf.exp(x)))

    return step_of(step, tf.ones([4, 8]))


def test_a_counter_that_is_read_after_it_was_set_is_one_further() -> None:
    assert turns_of(counting(lambda n: n % 3 == 0)) == [(0, 1, 1)]
    assert turns_of(counting(lambda n: n % 3 == 0, late=True)) == [(1, 1, 0)]


def test_conditions_may_be_made_of_others() -> None:
    assert turns_of(counting(lambda n: tf.logical_or(n % 4 == 1, tf.logical_not(n % 2 < 1)))) == [(1, 0)]


@pytest.mark.parametrize(
    "program",
    [
        lambda: counting(lambda n: n > 20),  # once, not in turns
        lambda: counting(lambda n: n % 3 == 0, twice=True),  # set by more than one
        lambda: counting(lambda n: n % 3 == 0, data=True),  # by what the data says
    ],
    ids=["once", "set twice", "set by data"],
)
def test_what_no_counter_decides_alone_stays_unknown(program: Callable[[], Program]) -> None:
    assert turns_of(program()) == [()]
