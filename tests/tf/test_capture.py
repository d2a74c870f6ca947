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
from lowtide.program import ITEM_BYTES, Dim, Op, Program, Source, verify
from lowtide.simulate import forecast, simulate, tidy_order
from lowtide.tf import compat, compiled, metrics, operations
from lowtide.tf.compat import GraphDef
from lowtide.tf.graphs import in_order
from lowtide.tf.hooks import trains
from lowtide.tf.patches import patched
from lowtide.tf.phases import assigns
from lowtide.tf.state import State
from lowtide.tf.trace import Seen, capture_function, capture_model

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


def test_a_convolution_in_groups_is_compiled_by_xla_and_has_the_bytes_that_xla_says() -> None:
    def notes(groups: int) -> list[str]:
        layers = [keras.Input([8, 8, 4]), keras.layers.Conv2D(4, 3, groups=groups), keras.layers.Flatten()]
        model = keras.Sequential(layers)
        program = program_of(model, np.zeros([2, 8, 8, 4], "float32"), np.zeros([2, 144], "float32"))
        return [f"{note.treatment}: {note.why}" for note in program.notes]

    assert notes(1) == []
    (note,) = notes(4)
    assert note.startswith("compiled: 2 of them"), "there and back"


def test_where_xla_does_not_say_its_bytes_it_is_named_and_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_asked_of_xla", lambda requests, graph_def: {})
    model = keras.Sequential([keras.Input([8, 8, 4]), keras.layers.Conv2D(4, 3, groups=4), keras.layers.Flatten()])
    program = program_of(model, np.zeros([2, 8, 8, 4], "float32"), np.zeros([2, 144], "float32"))
    assert [note.treatment for note in program.notes] == ["assumed", "assumed"], "there and back"
    assert all(op.bodies for op in program.ops if "Call" in op.kind), "its ops are TensorFlow's own then"


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


def split_in_two(x: Any) -> Any:
    """Two views of each sample, as in contrastive learning: no odd batch can be split."""
    return tf.concat([a * b for a, b in [tf.split(x, 2)]], 0)


def test_a_step_that_only_even_batches_go_through_has_a_law_for_them() -> None:
    program = trained(split_in_two, tf.ones([6, 8]))
    halves = {program.values[v].shape for op in program.ops if op.kind == "Split" for v in op.outputs}
    assert [[dim.at(64) for dim in shape] for shape in halves if shape] == [[32, 8]]
    assert not program.notes
    assert simulate(program, 64).peak > simulate(program, 6).peak


def test_a_step_that_no_small_batch_goes_through_has_no_law_and_the_right_sizes() -> None:
    program = trained(lambda x: tf.concat([a * b * c for a, b, c in [tf.split(x, 3)]], 0), tf.ones([6, 8]))
    assert not program.scales
    assert shapes(program, "Split") == {"2,8"}
    assert not program.notes
    assert simulate(program, 6).peak > 0


def test_half_of_a_batch_has_its_size_at_every_batch_and_a_loop_over_it_its_trips() -> None:
    program = trained(lambda x: looped(x[: tf.shape(x)[0] // 2], tf.shape(x)[0] // 2), tf.ones([16, 8]))
    assert not program.notes
    assert {op.trips.at(64) for op in loops(program) if op.trips} == {32}
    assert simulate(program, 64).peak > 32 * 32 * 8 * 4  # what each trip keeps


def test_a_list_that_a_loop_fills_row_by_row_is_as_long_as_the_batch_and_not_empty() -> None:
    program = trained(lambda x: tf.map_fn(lambda row: tf.tanh(row), x), tf.ones([16, 8]))
    assert all("gradient" in note.what for note in program.notes), "what the way back stacks is tried out"
    assert {op.trips.at(64) for op in loops(program) if op.trips} == {64}
    assert "B,8" in shapes(program, "TensorListStack")


def test_what_is_no_line_in_the_batch_is_named_and_right_at_the_batches_in_question() -> None:
    seen = Seen(batches=(100,))
    weight = tf.Variable(tf.ones([8, 8]))

    def step(x: Any) -> Any:
        weight.assign_add(tf.matmul(x[:12], x[:12], transpose_a=True))

    program = checked(capture_function(tf.function(step), (tf.ones([16, 8]),), {}, seen).program)
    (note,) = program.notes
    assert "no line in the batch" in note.why
    taken = [program.values[op.outputs[0]] for op in program.ops if op.kind == "StridedSlice"]
    assert [value.elements(100) for value in taken] == [12 * 8]


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


def test_every_type_of_tensorflow_has_its_bytes() -> None:
    types = [t for t in vars(tf.dtypes).values() if isinstance(t, tf.DType)]
    sizes = {t.name: t.size for t in types if t not in (tf.string, tf.variant, tf.resource)}
    assert len(sizes) > 16
    assert {name: ITEM_BYTES.get(name) for name in sizes} == sizes


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


WEIGHTS = (8 * 32 + 32 + 32 * 4 + 4) * 4


@pytest.mark.parametrize(("optimizer", "slots"), [("sgd", 0), ("adam", 2)])
def test_weights_and_slots_are_resident_under_their_own_names(optimizer: str, slots: int) -> None:
    program = program_of(
        dense(32, 4), np.zeros([6, 8], "f"), np.zeros([6, 4], "f"), optimizer=optimizer, metrics=["mae"]
    )
    weights = WEIGHTS
    by_category: dict[str, int] = {}
    for resident in program.residents:
        by_category[resident.category] = by_category.get(resident.category, 0) + resident.bytes
    assert weights <= by_category["parameters"] <= weights + 64
    assert slots * weights <= by_category.get("optimizer state", 0) <= slots * weights + 64
    assert any("dense_0/kernel" in r.name for r in program.residents)
    by_layer = {layer: sum(r.bytes for r in program.residents if r.layer == layer) for layer in ("dense_0", "dense_1")}
    assert by_layer == {"dense_0": (slots + 1) * (8 * 32 + 32) * 4, "dense_1": (slots + 1) * (32 * 4 + 4) * 4}
    assert set(forecast(program).by_layer) >= {"dense_0", "dense_1"}


# --- optimizers ---

OPTIMIZERS = {
    "SGD": (0, lambda: keras.optimizers.SGD(weight_decay=0.01)),
    "momentum": (1, lambda: keras.optimizers.SGD(momentum=0.9, nesterov=True)),
    "RMSprop": (1, keras.optimizers.RMSprop),
    "Adam": (2, keras.optimizers.Adam),
    "averaged": (3, lambda: keras.optimizers.Adam(use_ema=True, global_clipnorm=1.0)),
    "AdamW": (2, keras.optimizers.AdamW),
    "Adadelta": (2, keras.optimizers.Adadelta),
    "Adagrad": (1, keras.optimizers.Adagrad),
    "Adamax": (2, keras.optimizers.Adamax),
    "Adafactor": (1, keras.optimizers.Adafactor),
    "Nadam": (2, keras.optimizers.Nadam),
    "Ftrl": (2, keras.optimizers.Ftrl),
    "Lion": (1, keras.optimizers.Lion),
    "Lamb": (2, keras.optimizers.Lamb),
    "Muon": (1, keras.optimizers.Muon),
    "LossScale": (2, lambda: keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam())),
    "accumulating": (3, lambda: keras.optimizers.Adam(gradient_accumulation_steps=2)),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_whatever_an_optimizer_changes_is_the_update_and_its_slots_are_its_state(name: str) -> None:
    slots, make = OPTIMIZERS[name]
    program = program_of(dense(32, 4), np.zeros([6, 8], "f"), np.zeros([6, 4], "f"), optimizer=make(), metrics=["mae"])
    theirs = {r.value for r in program.residents if r.bytes >= 16 and r.category in ("parameters", "optimizer state")}
    changes = [op for op in program.ops if assigns(op.kind) or op.kind == "If" if theirs.intersection(op.inputs)]
    assert theirs <= {value for op in changes for value in op.inputs}
    assert {op.phase for op in changes} == {"update"}
    assert {op.phase for op in program.ops if op.kind == "AssignSubVariableOp"} <= {"update"}
    state = sum(r.bytes for r in program.residents if r.category == "optimizer state")
    assert slots * WEIGHTS <= state <= (slots + 0.5) * WEIGHTS
    prediction = forecast(program, 64)
    assert sum(prediction.by_category.values()) == prediction.peak
    assert min(prediction.by_category.values()) >= 0


def test_what_the_forward_pass_changes_is_not_the_update() -> None:
    model = keras.Sequential([keras.Input([8]), keras.layers.BatchNormalization(name="norm"), keras.layers.Dense(4)])
    program = program_of(model, np.zeros([6, 8], "f"), np.zeros([6, 4], "f"), optimizer="adam", metrics=["mae"])
    statistics = {r.value for r in program.residents if "moving" in r.name}
    changes = [op for op in program.ops if op.kind == "AssignVariableOp" if statistics.intersection(op.inputs)]
    assert [op.phase for op in changes] == ["forward", "forward"]


def test_a_sum_of_gradients_is_backward() -> None:
    weight = tf.Variable(tf.ones([8, 8]))

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            hidden = tf.tanh(tf.matmul(x, weight))
            loss = tf.reduce_sum(hidden * tf.sigmoid(hidden) * tf.exp(hidden))
        weight.assign_sub(tape.gradient(loss, weight))

    sums = [op for op in step_of(step, tf.ones([4, 8])).ops if op.kind == "AddN"]
    assert sums
    assert {op.phase for op in sums} == {"backward"}


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


def test_a_sum_in_a_functional_model_has_its_own_line_not_the_models() -> None:
    with patched(operations.NOTING):
        inputs = keras.Input((8,))
        hidden = keras.layers.Dense(8)(inputs)
        first = inspect.currentframe().f_lineno  # type: ignore[union-attr]
        total = inputs * 3.0 + hidden
        model = keras.Model(inputs, keras.layers.Dense(1)(total))
    program = program_of(model, np.zeros([4, 8], "f"), np.zeros([4, 1], "f"))
    tripled = next(op for op in program.ops if op.kind == "Mul" and op.phase == "forward")
    summed = next(op for op in program.ops if op.kind == "AddV2" and tripled.outputs[0] in op.inputs)
    assert tripled.source == summed.source == Source(__file__, first + 1)


def test_what_a_metric_computes_has_the_line_that_made_the_metric() -> None:
    with patched(metrics.NOTING):
        made = inspect.currentframe().f_lineno  # type: ignore[union-attr]
        recall = keras.metrics.Recall(thresholds=[0.1, 0.5, 0.55])
        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1, "sigmoid")])
        model.compile("sgd", "binary_crossentropy", metrics=[recall])
        step = capture_model(model, (tf.ones([4, 8]), tf.ones([4, 1])))
    compared = [op for op in step.program.ops if op.kind == "Greater" and op.phase != "backward"]
    assert Source(__file__, made + 1) in {op.source for op in compared}


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


# --- from Python, what has to be tried out is tried out in another process ---


class UntilSmall(keras.layers.Layer):
    """A loop whose end only the data knows."""

    def call(self, x: Any) -> Any:
        start = tf.reduce_max(x) * 0 + 64.0
        return tf.while_loop(lambda n, x: n > 1.0, lambda n, x: (n * 0.5, tf.tanh(x)), [start, x])[1]


def test_from_python_a_loop_that_the_data_ends_is_rehearsed_elsewhere() -> None:
    model = keras.Sequential([keras.Input([8]), keras.layers.Dense(64), UntilSmall(), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    before = [v.numpy() for v in (*model.variables, *model.optimizer.variables)]
    prediction = lowtide.predict(model, batch_size=512)
    after = [v.numpy() for v in model.variables]
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=False))
    assert int(model.optimizer.iterations) == 0
    assert {note.treatment for note in prediction.forecast.notes} == {"rehearsed"}
    assert any("6 times" in note.why for note in prediction.forecast.notes)
    assert prediction.peak > 6 * 512 * 64 * 4  # what each trip keeps for the way back


def test_from_python_a_model_that_xla_compiles_has_xlas_plan() -> None:
    def made(jit_compile: bool) -> Any:
        model = dense(256, 4)
        model.compile("sgd", "mse", jit_compile=jit_compile)
        return lowtide.predict(model, batch_size=64)

    plain, compiled = made(False), made(True)
    assert (plain.to_json()["compiler"], compiled.to_json()["compiler"]) == ("executor", "xla")
    (note,) = compiled.forecast.notes
    assert note.treatment == "compiled"
    assert 64 * 256 * 4 <= note.bytes <= 4 * 64 * 256 * 4
    assert compiled.per_sample >= 256 * 4


class WideIfPositive(keras.layers.Layer):
    """A branch that needs much more than the other."""

    def call(self, x: Any) -> Any:
        wide = lambda: tf.reduce_sum(tf.tanh(tf.tile(x, [1, 64])), axis=1, keepdims=True)  # noqa: E731
        return x * tf.cond(tf.reduce_mean(x) > 0.0, wide, lambda: x[:, :1])


def test_from_python_the_users_data_chooses_the_branch_and_made_up_data_does_not() -> None:
    ones = keras.initializers.Ones()
    dense = keras.layers.Dense(16, kernel_initializer=ones)
    model = keras.Sequential([keras.Input([8]), dense, WideIfPositive()])
    model.compile(keras.optimizers.SGD(1e-9), "mse")  # a large step could turn the sign between two rehearsals
    made_up = lowtide.predict(model, batch_size=64)
    narrow = lowtide.predict(model, batch_size=64, data=(-np.ones([64, 8], "f"), np.zeros([64, 16], "f")))
    assert {note.treatment for note in made_up.forecast.notes} == {"bounded"}
    assert {note.treatment for note in narrow.forecast.notes} == {"rehearsed"}
    assert narrow.peak < made_up.peak


class CallsPython(keras.layers.Layer):
    def call(self, x: Any) -> Any:
        return tf.ensure_shape(tf.py_function(lambda x: x, [x], tf.float32), x.shape)


def test_from_python_xla_that_cannot_compile_is_said_and_not_zero() -> None:
    model = keras.Sequential([keras.Input([8]), keras.layers.Dense(4), CallsPython()])
    model.compile("sgd", "mse", jit_compile=True)
    prediction = lowtide.predict(model, batch_size=16)
    assert prediction.to_json()["compiler"] == "executor"
    assert any(note.what == "jit_compile=True" and "XLA" in note.why for note in prediction.forecast.notes)


def test_a_model_run_eagerly_is_predicted_as_if_compiled_and_says_so() -> None:
    model = dense(32, 4)
    model.compile("sgd", "mse", run_eagerly=True)
    assert [note.what for note in lowtide.predict(model, batch_size=16).forecast.notes] == ["run_eagerly=True"]


def test_nothing_waits_for_the_last_of_equal_constants() -> None:
    """Grappler keeps one of them; what was traced first reads it, and is to stay first."""
    graph_def = GraphDef()
    graph_def.node.add(name="late", op="NoOp")
    graph_def.node.add(name="early", op="Neg", input=["one"])
    graph_def.node.add(name="one", op="Const")
    rank = {"early": 0, "late": 1, "one": 2}
    assert [node.name for node in in_order(graph_def.node, rank)] == ["one", "early", "late"]


def test_variables_that_share_their_memory_get_a_copy_each() -> None:
    """As the slots of an optimizer do that is built while a function is traced."""
    zeros = tf.zeros((64, 64))
    one, other = tf.Variable(zeros), tf.Variable(zeros)

    @tf.function
    def step(x: Any) -> None:
        one.assign_add(x)
        other.assign_sub(x)

    captured = capture_function(step, (tf.ones((64, 64)),), {})
    assert compat.address_of(one.handle) == compat.address_of(other.handle)
    State(captured).settle()
    assert compat.address_of(one.handle) != compat.address_of(other.handle)
    assert np.array_equal(one, other)


def test_a_branch_that_is_known_before_gives_its_own_shapes() -> None:
    """The gradient of `set_diag` makes a shape in a `cond` on how many diagonals there are: of one side, or of two."""
    weight = tf.Variable(tf.ones([6, 6]))

    @tf.function
    def train(x: Any) -> Any:
        with tf.GradientTape() as tape:
            alike = tf.matmul(x @ weight, x, transpose_b=True)
            loss = tf.reduce_sum(tf.linalg.set_diag(alike, tf.fill([tf.shape(x)[0]], -1e9)) ** 2)
        weight.assign_sub(tape.gradient(loss, weight))
        return loss

    program = checked(capture_function(train, (tf.ones([8, 6]),), {}).program)
    set_diag = [op for op in program.ops if op.kind == "MatrixSetDiagV3"]
    assert {program.values[op.outputs[0]].bytes(8) for op in set_diag} == {8 * 8 * 4}
