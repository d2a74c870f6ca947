"""A branch's gradient that asks for a shape is given the shape, and computes the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from lowtide.tf.rewrite import as_function
from lowtide.tf.trace import capture_function

pytestmark = pytest.mark.tensorflow

X = tf.reshape(tf.range(24.0), [4, 6]) / 24


def step_of(branch: Callable[[Any, Any], Any]) -> Any:
    """A step that differentiates what a branch makes of `X` and a row that is broadcast."""
    weight = tf.Variable(tf.ones([6]))

    @tf.function
    def train(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.cond(tf.reduce_sum(x) > 0, lambda: branch(x, weight), lambda: x[:1]))
        gradient = tape.gradient(loss, weight)
        weight.assign_sub(0.1 * gradient)
        return loss, gradient

    return train


def wrapped(step: Any) -> list[str]:
    """What kinds of ops the branches wrap for their gradients."""
    found = []
    for function in step.graph_def.library.function:
        kinds = {node.name: node.op for node in function.node_def}
        optionals = [node for node in function.node_def if node.op == "OptionalFromValue"]
        found += [kinds.get(node.input[0].partition(":")[0], "") for node in optionals]
    return found


def results(train: Any) -> Any:
    step = capture_function(train, (X,), {})
    return step, [value.numpy().tolist() for value in as_function(step, step.graph_def)(X)]


def test_a_value_that_only_its_shape_is_asked_of_is_let_go() -> None:
    """The gradient of a sum asks what was summed for its shape, and the gradient of `*` asks for the values."""
    step, found = results(step_of(lambda x, w: tf.reduce_sum(x * w, 0, keepdims=True)))
    assert "Shape" in wrapped(step)
    assert "Mul" not in wrapped(step), "the product is wanted by nobody but for its shape"
    loss, gradient = found
    assert loss == pytest.approx(float(tf.reduce_sum(X)))
    assert gradient == pytest.approx(tf.reduce_sum(X, 0).numpy().tolist())


def test_a_value_that_is_asked_for_itself_too_stays_whole() -> None:
    """`tanh` needs its own result on the way back, and the sum its shape."""
    step, found = results(step_of(lambda x, w: tf.reduce_sum(tf.tanh(x * w), 0, keepdims=True)))
    assert "Tanh" in wrapped(step)
    assert found[1] == pytest.approx(tf.reduce_sum(X * (1 - tf.tanh(X) ** 2), 0).numpy().tolist(), rel=1e-5)
