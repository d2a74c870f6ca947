"""The changes that `--verify` makes: what is computed stays as it was, but for the batch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from lowtide.tf import compat
from lowtide.tf.changes import CHANGES


@contextlib.contextmanager
def changed(name: str) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for owner, attribute, make in CHANGES[name]():
            stack.enter_context(compat.replaced(owner, attribute, make))
        yield


X = np.random.default_rng(0).random((600, 4), dtype="float32")
Y = X.sum(axis=1, keepdims=True)


def trained(*arguments: Any, **options: Any) -> tuple[list[Any], list[int]]:
    """Weights after a short training, and the rows of each batch."""
    keras.utils.set_random_seed(1)
    rows: list[int] = []

    class Linear(keras.Model):  # type: ignore[misc]  # Keras has no types
        def __init__(self) -> None:
            super().__init__()
            self.dense = keras.layers.Dense(1)

        def call(self, x: Any) -> Any:
            rows.append(int(x.shape[0]))
            return self.dense(x)

    model = Linear()
    model.compile("sgd", "mse", run_eagerly=True)
    model.fit(*arguments, verbose=0, shuffle=False, **options)
    return model.get_weights(), rows


@pytest.mark.parametrize(
    "options", [((X, Y, 100, 2), {}), ((X, Y), {"batch_size": 100, "epochs": 2}), ((X,), {"y": Y})]
)
def test_streamed_data_trains_the_same_weights(options: Any) -> None:
    arguments, named = options
    plain, batches = trained(*arguments, **named)
    with changed("stream"):
        streamed, pieces = trained(*arguments, **named)
    assert pieces == batches
    for a, b in zip(plain, streamed, strict=True):
        assert (a == b).all()


def test_streamed_float64_arrives_in_float32() -> None:
    kinds = set()

    class Looks(keras.layers.Layer):  # type: ignore[misc]  # Keras has no types
        def call(self, x: Any) -> Any:
            kinds.add(x.dtype.name if hasattr(x.dtype, "name") else str(x.dtype))
            return x

    model = keras.Sequential([keras.Input((4,)), Looks(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    with changed("stream"):
        model.fit(X.astype("float64"), Y, verbose=0)
    assert kinds == {"float32"}


def test_streamed_slices_are_the_same_elements() -> None:
    with changed("stream"):
        found = list(tf.data.Dataset.from_tensor_slices(X).as_numpy_iterator())
    assert (np.stack(found) == X).all()


def test_half_the_batch_is_half_the_rows_of_each_step() -> None:
    with changed("batch"):
        assert set(trained(X, Y, 100)[1]) == {50}
        assert set(trained(tf.data.Dataset.from_tensor_slices((X, Y)).batch(60))[1]) == {30}


def test_a_tape_watches_only_what_its_line_was_asked_for() -> None:
    used, unused = tf.Variable(2.0), tf.Variable(3.0)
    watched, gradients = [], []
    with changed("watch"):
        for _ in range(2):
            with tf.GradientTape() as tape:
                y = used * unused
            gradients.append(float(tape.gradient(y, used)))
            watched.append(len(tape.watched_variables()))
    assert gradients == [3.0, 3.0]
    assert watched == [2, 1]
