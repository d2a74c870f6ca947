"""Layers and the scopes that Keras and TensorFlow number independently of each other."""

from __future__ import annotations

import keras
import pytest
import tensorflow as tf

from lowtide.program import Source
from lowtide.tf import compat
from lowtide.tf.labels import Labels, LayerNames, without_calls
from lowtide.tf.scopes import opened_in, traced

pytestmark = pytest.mark.tensorflow


def test_an_op_belongs_to_the_layer_that_opened_its_scope_whatever_numbers_they_have() -> None:
    names = ["dense", "dense_1", "dense_2", "dense_1_1"]
    model = keras.Sequential([keras.Input([4]), *(keras.layers.Dense(3, name=name) for name in names)], name="model")
    graph = traced(tf.function(model), [tf.TensorSpec([1, 4])], {}).graph
    products = [op.name for op in graph.get_operations() if op.type == "MatMul"]
    labels = Labels(graph, LayerNames(["model", *names]))
    assert [labels.of(name).layer for name in products] == names
    assert any(name.split("/")[1] != layer for name, layer in zip(products, names, strict=True))  # names mislead


def test_of_small_things_one_op_in_a_scope_is_asked_for_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow keeps what it answers. A layer whose line is known is not asked at all."""

    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.name_scope("mine"):
            y = tf.tanh(x)
            y = tf.nn.relu(y)
        with tf.name_scope("made"):
            return tf.nn.relu(y)

    graph = step.get_concrete_function(tf.TensorSpec([1])).graph
    asked: list[str] = []
    monkeypatch.setattr(compat, "frames", lambda op: asked.append(op.name) or [])
    labels = Labels(graph, LayerNames(["made"], {"made": Source("model.py", 7)}))
    for name in ("mine/Tanh", "mine/Relu", "made/Relu"):
        labels.of(name, roughly=True)
    assert asked == ["mine/Tanh"]
    assert labels.of("made/Relu", roughly=True).source == Source("model.py", 7)
    labels.of("mine/Relu")
    assert asked == ["mine/Tanh", "mine/Relu"]


def test_a_graph_that_nobody_saw_being_traced_has_the_names_of_its_scopes() -> None:
    @tf.function
    def step(x: tf.Tensor) -> tf.Tensor:
        with tf.name_scope("mine_1"):
            return x + 1.0

    graph = step.get_concrete_function(tf.TensorSpec([1])).graph
    assert opened_in(graph) == {}
    assert LayerNames(["mine"]).layer_of("mine_1/add", opened_in(graph)) == "mine"


@pytest.mark.parametrize(
    ("ran", "traced_as"),
    [
        ("StatefulPartitionedCall/dense/MatMul", "dense/MatMul"),
        ("PartitionedCall_1/StatefulPartitionedCall/dense/MatMul", "dense/MatMul"),
        ("ConstantFolding/StatefulPartitionedCall/dense/axis", "ConstantFolding/dense/axis"),
        ("dense/PartitionedCall/add", "dense/PartitionedCall/add"),
        ("StatefulPartitionedCall", "StatefulPartitionedCall"),
    ],
)
def test_an_op_of_a_function_has_its_callers_name_in_front(ran: str, traced_as: str) -> None:
    assert without_calls(ran) == traced_as
