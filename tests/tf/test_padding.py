"""How much of a batch is padding is measured on the batch itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lowtide.record import Data
from lowtide.tf import compat
from lowtide.tf.padding import filled_part
from lowtide.tf.pipelines import Pipelines
from lowtide.tf.places import Births

pytestmark = pytest.mark.tensorflow


@pytest.fixture
def rows() -> Iterator[list[Data]]:
    """What is written of padded batches while the test runs."""
    found: list[Any] = []

    def attempt(what: str, action: Callable[[], Any]) -> Any:
        return action()

    writer = SimpleNamespace(add=found.extend)
    watch: Any = SimpleNamespace(
        alive=True, now=1.0, step=None, keep=lambda source: None, attempt=attempt, writer=writer
    )
    with contextlib.ExitStack() as stack:
        for owner, name, make in Pipelines(watch, Births()).patches():
            stack.enter_context(compat.replaced(owner, name, make))
        yield found


def batches(lengths: list[int], size: int) -> Any:
    def rows_of_ones() -> Iterator[Any]:
        for length in lengths:
            yield np.ones((length, 64), "float32")

    form = tf.TensorSpec((None, 64), tf.float32)
    return tf.data.Dataset.from_generator(rows_of_ones, output_signature=form).padded_batch(size)


def test_a_batch_padded_to_one_long_row_is_told_with_what_is_no_padding(rows: list[Data]) -> None:
    for _ in batches([2000] + [20] * 7, 8).prefetch(1):
        pass
    (row,) = rows
    assert (row.what, row.shape, row.bytes) == ("padded_batch", "(8, 2000, 64)", 8 * 2000 * 64 * 4)
    assert row.filled_bytes == (2000 + 7 * 20) * 64 * 4
    assert row.source is not None and row.source.file == __file__


def test_a_ragged_tensor_made_dense_is_told_with_its_values(rows: list[Data]) -> None:
    lengths = [4000] + [40] * 199
    ragged = tf.RaggedTensor.from_row_lengths(tf.ones(sum(lengths), tf.int32), lengths)
    for _ in range(2):
        ragged.to_tensor()  # the second is no larger than before: nothing new
    (row,) = rows
    assert (row.what, row.shape, row.filled_bytes) == ("to_tensor", "(200, 4000)", 4 * sum(lengths))


def test_small_batches_and_graphs_are_left_alone(rows: list[Data]) -> None:
    for _ in batches([9, 2], 2):
        pass
    long = [4000] + [1] * 199
    tf.function(lambda values: tf.RaggedTensor.from_row_lengths(values, long).to_tensor())(tf.ones(sum(long)))
    assert rows == []


def test_zeros_inside_a_row_are_no_padding() -> None:
    batch = np.zeros((2, 10, 3), "float32")
    batch[0, 9, 2] = batch[1, 4, 0] = 1
    assert filled_part(tf.constant(batch)) == 15 / 20
