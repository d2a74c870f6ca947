"""Whole numbers computed of shapes, compared with TensorFlow's own kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from lowtide.tf.graphs import edges
from lowtide.tf.values import computed

pytestmark = pytest.mark.tensorflow

CASES: dict[str, Callable[[Any], Any]] = {
    "one element": lambda s: s[1],
    "from the end": lambda s: s[-1] * 2 + 1,
    "a part": lambda s: s[1:3],
    "backwards": lambda s: s[::-1],
    "all but": lambda s: tf.concat([s[:1], s[2:]], 0),
    "half": lambda s: s[0] // 2,
    "rest": lambda s: s[0] % 3 - s[2],
    "larger": lambda s: tf.maximum(s[0], s[1]) + tf.minimum(s[1], s[2]),
    "product": lambda s: tf.reduce_prod(s),
    "sum": lambda s: tf.reduce_sum(s[1:], keepdims=True),
    "stacked": lambda s: tf.stack([s[0], 4, -s[1]]),
    "gathered": lambda s: tf.gather(s, [2, 0]),
    "wider": lambda s: tf.cast(s, tf.int64) * 3,
    "reshaped": lambda s: tf.squeeze(tf.expand_dims(tf.reshape(s, [3, 1]), 0)),
}


@pytest.mark.parametrize("name", CASES)
def test_arithmetic_on_shapes_is_tensorflows(name: str) -> None:
    shape = np.array([7, 5, 3], np.int32)
    graph = tf.function(CASES[name]).get_concrete_function(tf.TensorSpec([3], tf.int32)).graph
    values: dict[str, Any] = {}
    for node in graph.as_graph_def().node:
        if node.op == "Placeholder":
            values[node.name] = shape
        elif node.op == "Const":
            values[node.name] = tf.make_ndarray(node.attr["value"].tensor)
        else:
            values[node.name] = computed(node, [values[edge.node] for edge in edges(node)])
    found, expected = values[graph.outputs[0].op.name], CASES[name](tf.constant(shape)).numpy()
    assert found is not None
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    assert np.array_equal(found, expected)


def test_what_is_not_known_stays_so() -> None:
    function = tf.function(lambda x: x[0] // 0 + tf.argmax(x, output_type=tf.int32))
    graph = function.get_concrete_function(tf.TensorSpec([3], tf.int32)).graph
    nodes = {node.op: node for node in graph.as_graph_def().node}
    assert computed(nodes["AddV2"], [None, np.int32(3)]) is None
    assert computed(nodes["ArgMax"], [np.arange(3), np.int32(0)]) is None
    assert computed(nodes["StridedSlice"], [np.arange(3), [7], [8], [1]]) is None
