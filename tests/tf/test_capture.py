"""A traced step as a Program: sizes as functions of the batch, loops, labels, phases. Nothing is trained here."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import lowtide
from lowtide.errors import BadUse
from lowtide.program import Dim, Op, Program, Source, verify
from lowtide.simulate import simulate, tidy_order
from lowtide.tf.hooks import trains
from lowtide.tf.trace import capture_function, capture_model

pytestmark = pytest.mark.tensorflow

BATCH = Dim(0, 1)


@pytest.fixture(autouse=True)
def _fresh_names() -> None:
    keras.utils.clear_session()


def program_of(model: Any, x: Any, y: Any, loss: Any = "mse", optimizer: Any = "sgd", **options: Any) -> Program:
    model.compile(optimizer, loss, **options)
    return checked(capture_model(model, (tf.convert_to_tensor(x), tf.convert_to_tensor(y))).program)


def step_of(function: Callable[..., Any], *arguments: Any) -> Program:
    return checked(capture_function(tf.function(function), arguments, {}).program)


def checked(program: Program) -> Program:
    verify(program)
    return program


def everywhere(program: Program) -> list[tuple[Program, Op]]:
    """Every op, in bodies too, with the Program it is in."""
    own = [(program, op) for op in program.ops]
    return own + [pair for function in program.functions for pair in everywhere(function)]


def shapes(program: Program, *kinds: str) -> set[str]:
    return {
        ",".join(map(str, part.values[value].shape or ("?",)))
        for part, op in everywhere(program)
        if op.kind in kinds
        for value in op.outputs[:1]
    }


def dense(*units: int) -> Any:
    layers = [keras.layers.Dense(n, activation="relu", name=f"dense_{i}") for i, n in enumerate(units)]
    return keras.Sequential([keras.Input([8]), *layers])


# --- sizes ---


def test_a_dense_model_has_sizes_in_the_batch() -> None:
    program = program_of(dense(32, 4), np.zeros([6, 8], "f"), np.zeros([6, 4], "f"))
    assert program.batch == 6
    assert program.scales
    assert {"B,32", "B,4"} <= shapes(program, "_FusedMatMul", "MatMul")
    assert {"8,32", "32,4"} <= shapes(program, "MatMul")  # gradients of the kernels
    assert not program.notes


def test_a_convolution_has_sizes_in_the_batch() -> None:
    model = keras.Sequential(
        [
            keras.Input([16, 16, 3]),
            keras.layers.Conv2D(4, 3, strides=2, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(2),
        ]
    )
    program = program_of(model, np.zeros([5, 16, 16, 3], "f"), np.zeros([5, 2], "f"))
    assert shapes(program, "_FusedConv2D", "Conv2D") == {"B,8,8,4"}
    assert "B,4,4,4" in shapes(program, "MaxPool")
    assert "B,64" in shapes(program, "Reshape")


def test_a_reshape_can_multiply_the_batch() -> None:
    weight = tf.Variable(tf.ones([4, 4]))

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            pieces = tf.reshape(x, [-1, 4])  # four rows of each sample
            loss = tf.reduce_sum(tf.matmul(tf.pad(pieces, [[1, 1], [0, 0]]), weight) ** 2)
        weight.assign_sub(tape.gradient(loss, weight))
        return loss

    program = step_of(step, tf.ones([5, 16]))
    assert "4B,4" in shapes(program, "Reshape")
    assert "4B+2,4" in shapes(program, "Pad")


@pytest.mark.parametrize("needs_a_number", [False, True])
def test_code_that_needs_the_batch_as_a_number_still_gets_a_law(needs_a_number: bool) -> None:
    weight = tf.Variable(tf.ones([8, 8]))

    def step(x: Any) -> Any:
        rows = x.shape[0] if needs_a_number else tf.shape(x)[0]
        with tf.GradientTape() as tape:
            noise = tf.zeros([int(rows), 8]) if needs_a_number else tf.zeros([rows, 8])
            loss = tf.reduce_mean(tf.tanh(tf.matmul(x + noise, weight)))
        weight.assign_sub(tape.gradient(loss, weight))
        return loss

    program = step_of(step, tf.ones([6, 8]))
    assert program.scales
    assert "B,8" in shapes(program, "MatMul", "Tanh")
    assert (needs_a_number and program.batch) in (False, 6)


def test_code_that_insists_on_its_batch_has_no_law_and_the_right_sizes() -> None:
    weight = tf.Variable(tf.ones([8, 8]))

    def step(x: Any) -> Any:
        assert x.shape[0] == 6
        weight.assign_add(tf.matmul(x, x, transpose_a=True))

    program = step_of(step, tf.ones([6, 8]))
    assert not program.scales
    assert simulate(program, 6).peak > 0


def test_a_step_that_only_some_batches_go_through_has_no_law_and_the_right_sizes() -> None:
    """Two views of each sample, as in contrastive learning: no odd batch can be split."""
    program = trained(lambda x: tf.concat([a * b for a, b in [tf.split(x, 2)]], 0), tf.ones([6, 8]))
    assert not program.scales
    assert shapes(program, "Split") == {"3,8"}
    assert not program.notes
    assert simulate(program, 6).peak > 0


@pytest.mark.parametrize("batch", [1, 3, 32])
def test_the_example_batch_does_not_change_the_program(batch: int) -> None:
    weight = tf.Variable(tf.ones([8, 8]))

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.tanh(tf.matmul(x, weight)))
        weight.assign_sub(tape.gradient(loss, weight))

    program = step_of(step, tf.ones([batch, 8]))
    assert simulate(program, 64).peak == simulate(step_of(step, tf.ones([5, 8])), 64).peak


# --- loops and branches ---


def loops(program: Program) -> list[Op]:
    return [op for _, op in everywhere(program) if op.kind in ("While", "StatelessWhile")]


@pytest.mark.parametrize("layer", [keras.layers.LSTM, keras.layers.GRU])
def test_a_keras_recurrence_goes_round_once_a_time_step_forward_and_back(layer: Any) -> None:
    model = keras.Sequential([keras.Input([11, 4]), layer(8), keras.layers.Dense(1)])
    program = program_of(model, np.zeros([3, 11, 4], "f"), np.zeros([3, 1], "f"))
    assert [loop.trips for loop in loops(program)] == [Dim(11), Dim(11)]
    assert {loop.phase for loop in loops(program)} == {"forward", "backward"}
    assert not [note for note in program.notes if note.treatment == "unknown"]


def test_what_a_loop_keeps_for_the_way_back_grows_with_its_length() -> None:
    def peak(steps: int) -> int:
        model = keras.Sequential([keras.Input([steps, 4]), keras.layers.LSTM(32), keras.layers.Dense(1)])
        program = program_of(model, np.zeros([3, steps, 4], "f"), np.zeros([3, 1], "f"))
        return simulate(program, 64, tidy_order(program, 64)).peak

    ten, twenty, forty = peak(10), peak(20), peak(40)
    assert (forty - twenty) == pytest.approx(2 * (twenty - ten), rel=0.02)
    assert twenty - ten > 10 * 4 * 64 * 32 * 4  # at least four gates of each of ten steps


def looped(x: Any, count: Any) -> Any:
    return tf.while_loop(lambda i, x: i < count, lambda i, x: (i + 1, tf.tanh(x)), [0, x])[1]


def trained(compute: Callable[[Any, Any], Any], *arguments: Any) -> Program:
    weight = tf.Variable(tf.ones([8, 8]))

    def step(x: Any, *more: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(compute(tf.matmul(x, weight), *more))
        weight.assign_sub(tape.gradient(loss, weight))
        return loss

    return step_of(step, *arguments)


def test_a_loop_that_counts_to_a_constant_has_a_trip_count() -> None:
    program = trained(lambda x: looped(x, 7), tf.ones([4, 8]))
    assert {str(loop.trips) for loop in loops(program)} == {"7"}


def test_a_loop_that_the_data_ends_is_said_to_be_unknown() -> None:
    def until_small(x: Any) -> Any:
        return tf.while_loop(lambda x: tf.reduce_sum(x) > 1.0, lambda x: (x * 0.5,), [x])[0]

    program = trained(until_small, tf.ones([4, 8]))
    assert None in {loop.trips for loop in loops(program)}
    assert any("While" in note.what and "trip count" in note.why for note in program.notes)


def test_a_branch_has_both_its_bodies() -> None:
    def either(x: Any) -> Any:
        return tf.cond(tf.reduce_sum(x) > 0, lambda: tf.tanh(x), lambda: tf.nn.relu(tf.matmul(x, tf.ones([8, 8]))))

    program = trained(either, tf.ones([4, 8]))
    branches = [op for op in program.ops if op.kind in ("If", "StatelessIf")]
    assert branches
    assert all(len(op.bodies) == 2 for op in branches)
    kinds = {op.kind for _, op in everywhere(program)}
    assert "Tanh" in kinds
    assert {"Relu", "_FusedMatMul"} & kinds
    assert simulate(program, 4).peak > 0


def test_functions_called_by_the_step_are_part_of_it() -> None:
    inner = tf.function(lambda x: tf.tanh(tf.tanh(x)))
    program = trained(lambda x: inner(x), tf.ones([4, 8]))
    assert [op.kind for _, op in everywhere(program)].count("Tanh") == 2


# --- gradients of embeddings, precision ---


def test_the_gradient_of_an_embedding_is_as_large_as_the_batch_and_not_as_the_table() -> None:
    layers = [keras.layers.Embedding(10_000, 16), keras.layers.Flatten(), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input([5], dtype="int32"), *layers])
    program = program_of(model, np.zeros([4, 5], "i"), np.zeros([4, 1], "f"))
    assert "ResourceScatterSub" in {op.kind for op in program.ops}
    assert "5B,16" in shapes(program, "Reshape")
    large = [op.kind for op in program.ops for value in op.outputs if program.values[value].bytes(4) >= 10_000 * 16 * 4]
    assert set(large) <= {"ReadVariableOp"}


def test_mixed_precision_keeps_activations_in_half_and_weights_in_full() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = dense(32, 4)
        program = program_of(model, np.zeros([6, 8], "f"), np.zeros([6, 4], "f"))
    finally:
        keras.config.set_dtype_policy("float32")
    products = {program.values[op.outputs[0]].dtype for op in program.ops if "MatMul" in op.kind}
    assert products == {"float16"}
    weights = sum(r.bytes for r in program.residents if r.category == "parameters")
    assert weights >= (8 * 32 + 32 + 32 * 4 + 4) * 4


# --- residents ---


@pytest.mark.parametrize(("optimizer", "slots"), [("sgd", 0), ("rmsprop", 1), ("adam", 2)])
def test_weights_and_slots_are_resident_under_their_own_names(optimizer: str, slots: int) -> None:
    program = program_of(
        dense(32, 4), np.zeros([6, 8], "f"), np.zeros([6, 4], "f"), optimizer=optimizer, metrics=["mae"]
    )
    weights = (8 * 32 + 32 + 32 * 4 + 4) * 4
    by_category: dict[str, int] = {}
    for resident in program.residents:
        by_category[resident.category] = by_category.get(resident.category, 0) + resident.bytes
    assert weights <= by_category["parameters"] <= weights + 64
    assert slots * weights <= by_category.get("optimizer state", 0) <= slots * weights + 64
    assert any("dense_0/kernel" in r.name for r in program.residents)


# --- labels ---


class Penalized(keras.Model):
    """A gradient penalty: a gradient of a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = keras.layers.Dense(16, activation="tanh", name="hidden")
        self.out = keras.layers.Dense(1, name="out")

    def call(self, x: Any) -> Any:
        return self.out(self.hidden(x))

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                inner.watch(x)
                score = self(x, training=True)
            slope = inner.gradient(score, x)
            penalty = tf.reduce_mean(tf.square(tf.norm(slope, axis=1, name="length") - 1.0), name="penalty")
            loss = tf.reduce_mean(tf.square(score - y)) + penalty
        variables = self.trainable_variables
        self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return {"loss": loss}


def test_ops_know_their_layer_and_the_users_line() -> None:
    program = program_of(Penalized(), np.zeros([4, 8], "f"), np.zeros([4, 1], "f"))
    first = inspect.getsourcelines(Penalized.train_step)[1]
    penalty = next(op for op in program.ops if op.name.startswith("penalty") or "/penalty" in op.name)
    assert penalty.source == Source(__file__, first + 7)
    layers = {op.layer for op in program.ops if "MatMul" in op.kind}
    assert {"hidden", "out"} <= layers


def test_a_backward_op_has_the_line_it_was_made_on_or_that_of_the_op_it_differentiates() -> None:
    weight = tf.Variable(tf.ones([8, 8]))

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.tanh(tf.matmul(x, weight), name="squash"))
        weight.assign_sub(tape.gradient(loss, weight))

    program = step_of(step, tf.ones([4, 8]))
    squash = inspect.getsourcelines(step)[1] + 2
    assert {op.source for op in program.ops if op.kind == "Tanh"} == {Source(__file__, squash)}
    (gradient,) = [op for op in program.ops if op.kind == "TanhGrad"]
    assert gradient.source in (Source(__file__, squash), Source(__file__, squash + 1))


def test_a_penalty_on_gradients_is_forward_between_two_backward_passes() -> None:
    program = program_of(Penalized(), np.zeros([4, 8], "f"), np.zeros([4, 1], "f"), optimizer="adam")
    phase = {op.name: op.phase for op in program.ops}
    length = [p for name, p in phase.items() if "length" in name and "gradient_tape" not in name]
    assert length
    assert set(length) == {"forward"}
    assert {p for name, p in phase.items() if "gradient_tape" in name} == {"backward"}
    slots = [op for op in program.ops if op.kind == "AssignAddVariableOp"]
    assert len(slots) == 8  # two for each of four weights
    assert {op.phase for op in slots} == {"update"}


def test_phases_of_a_plain_step_come_in_order_of_their_data() -> None:
    program = program_of(dense(32, 4), np.zeros([6, 8], "f"), np.zeros([6, 4], "f"), optimizer="adam")
    maker = {value: op for op in program.ops for value in op.outputs}
    rank = {"forward": 0, "backward": 1, "update": 2}
    for op in program.ops:
        for value in op.inputs:
            if program.values[value].bytes(64) > 256:  # Grappler shares shapes and constants between phases
                assert rank[maker[value].phase] <= rank[op.phase], (maker[value].name, op.name)
    assert {op.phase for op in program.ops} == set(rank)


# --- what trains ---


def test_what_counts_as_training() -> None:
    weight = tf.Variable(1.0)

    def gradient(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = x * x
        return tape.gradient(y, x)

    def graph_of(function: Any) -> Any:
        return tf.function(function).get_concrete_function(tf.TensorSpec([])).graph

    assert trains(graph_of(lambda x: weight.assign(x)))
    assert trains(graph_of(gradient))
    assert trains(graph_of(lambda x: tf.cond(x > 0, lambda: weight.assign_add(x), lambda: x)))
    assert not trains(graph_of(lambda x: x * weight))


# --- from Python ---


def test_predict_from_python_and_nothing_was_trained() -> None:
    model = dense(32, 4)
    model.compile("adam", "mse")
    before = [v.numpy() for v in model.variables]
    prediction = lowtide.predict(model, batch_size=64)
    assert prediction.peak > 0
    assert prediction.timeline.batch == 64
    assert all(np.array_equal(a, v.numpy()) for a, v in zip(before, model.variables, strict=True))
    assert int(model.optimizer.iterations) == 0
    largest = lowtide.largest_batch(model, "64 MiB")
    assert lowtide.predict(model, batch_size=largest).timeline.peak <= 64 << 20


@pytest.mark.parametrize("batch", [0, -3, 1.5, "64", True, None])
def test_a_batch_size_that_is_none_is_refused(batch: Any) -> None:
    model = dense(4)
    model.compile("sgd", "mse")
    with pytest.raises(BadUse, match="positive whole number"):
        lowtide.predict(model, batch_size=batch)


def test_models_that_cannot_be_predicted_say_what_they_lack() -> None:
    with pytest.raises(BadUse, match="not compiled"):
        lowtide.predict(dense(4))
    with pytest.raises(BadUse, match="expected a Keras model"):
        lowtide.predict(tf.function(abs))
    subclassed = Penalized()
    subclassed.compile("sgd", "mse")
    with pytest.raises(BadUse, match="pass data="):
        lowtide.predict(subclassed)
    data = (np.zeros([10, 8], "f"), np.zeros([10, 1], "f"))
    assert lowtide.predict(subclassed, batch_size=4, data=data).peak > 0
