"""Small training steps of every kind, and one process that predicts, runs and compares one of them.

`python -m tests.tf.small_models NAME` prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lowtide.simulate import simulate, tidy_order
from lowtide.simulate.step import MOST_STEPS
from lowtide.tf import profile
from lowtide.tf.capture import Step
from lowtide.tf.fit import program_as_it_lies
from lowtide.tf.rehearse import needs_rehearsal, rehearse
from lowtide.tf.rewrite import as_function, ordered_graph
from lowtide.tf.trace import capture_function, capture_model, flat_tensors

BATCH = 64
STEPS = 3
Captured = tuple[Step, list[Any]]


def normal(*shape: int) -> Any:
    """Made by TensorFlow: an array from NumPy is shared, not copied to the device, if it happens to be aligned."""
    return tf.random.stateless_normal(shape, [7, 7])


def whole(limit: int, *shape: int) -> Any:
    return tf.random.stateless_uniform(shape, [8, 8], 0, limit, tf.int32)


def of_model(model: Any, x: Any, y: Any, loss: Any, optimizer: Any = "adam", **options: Any) -> Captured:
    model.compile(optimizer, loss, **options)
    return capture_model(model, (x, y)), flat_tensors((x, y))


def mlp() -> Captured:
    layers = [keras.layers.Dense(256, activation="relu") for _ in range(4)]
    model = keras.Sequential([keras.Input([128]), *layers, keras.layers.Dense(10)])
    return of_model(model, normal(BATCH, 128), normal(BATCH, 10), "mse", metrics=["mae"])


def averaged() -> Captured:
    """Weights overwritten with their averages every fifth step: from then on both share a buffer, until one is set."""
    layers = [keras.layers.Dense(256, activation="relu") for _ in range(4)]
    model = keras.Sequential([keras.Input([128]), *layers, keras.layers.Dense(10)])
    optimizer = keras.optimizers.SGD(0.01, momentum=0.9, use_ema=True, ema_overwrite_frequency=5)
    return of_model(model, normal(BATCH, 128), normal(BATCH, 10), "mse", optimizer=optimizer)


def cnn() -> Captured:
    layers: list[Any] = [keras.Input([32, 32, 3])]
    for filters in (16, 32):
        layers += [
            keras.layers.Conv2D(filters, 3, padding="same", use_bias=False),
            keras.layers.BatchNormalization(),
            keras.layers.ReLU(),
            keras.layers.MaxPooling2D(),
            keras.layers.Dropout(0.3),
        ]
    model = keras.Sequential([*layers, keras.layers.Flatten(), keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return of_model(model, normal(BATCH, 32, 32, 3), whole(10, BATCH), loss, keras.optimizers.SGD(0.1, momentum=0.9))


def lstm() -> Captured:
    model = keras.Sequential([keras.Input([30, 32]), keras.layers.LSTM(128), keras.layers.Dense(1)])
    return of_model(model, normal(BATCH, 30, 32), normal(BATCH, 1), "mse")


def transformer() -> Captured:
    tokens = keras.Input([32], dtype="int32")
    x = keras.layers.Embedding(500, 64)(tokens)
    for _ in range(2):
        attended = keras.layers.MultiHeadAttention(4, 16, dropout=0.1)(x, x, use_causal_mask=True)
        x = keras.layers.LayerNormalization()(x + attended)
        hidden = keras.layers.Dense(64)(keras.layers.Dense(128, activation="gelu")(x))
        x = keras.layers.LayerNormalization()(x + keras.layers.Dropout(0.1)(hidden))
    model = keras.Model(tokens, keras.layers.Dense(500)(x))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return of_model(model, whole(500, BATCH, 32), whole(500, BATCH, 32), loss)


def long_attention() -> Captured:
    """Scores that outweigh all else: what Einsum copies decides the peak."""
    inputs = keras.Input([200, 16])
    attended = keras.layers.MultiHeadAttention(2, 8)(inputs, inputs)
    model = keras.Model(inputs, keras.layers.Dense(1)(attended))
    return of_model(model, normal(BATCH, 200, 16), normal(BATCH, 200, 1), "mse")


def embedding(optimizer: Any = "adam") -> Captured:
    layers = [keras.layers.Embedding(5000, 32), keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1)]
    model = keras.Sequential([keras.Input([40], dtype="int32"), *layers])
    return of_model(model, whole(5000, BATCH, 40), normal(BATCH, 1), "mse", optimizer)


def embedding_adagrad() -> Captured:
    """Its update asks at run time which rows it touches."""
    return embedding("adagrad")


class Gan(keras.Model):
    """Two optimizers, and a penalty on the critic's gradient."""

    def __init__(self) -> None:
        super().__init__()
        dense = keras.layers.Dense
        self.critic = keras.Sequential([keras.Input([256]), dense(512, "tanh"), dense(1)])
        self.generator = keras.Sequential([keras.Input([16]), dense(512, "relu"), dense(256)])
        self.critic_optimizer = keras.optimizers.Adam(1e-3)
        self.generator_optimizer = keras.optimizers.RMSprop(1e-3)
        self.critic_optimizer.build(self.critic.trainable_variables)
        self.generator_optimizer.build(self.generator.trainable_variables)
        self.noise = keras.random.SeedGenerator(3)

    def call(self, x: Any) -> Any:
        return self.critic(x)

    def train_step(self, real: Any) -> Any:
        noise = keras.random.normal([tf.shape(real)[0], 16], seed=self.noise)
        with tf.GradientTape() as tape:
            fake = self.generator(noise, training=True)
            with tf.GradientTape() as inner:
                inner.watch(fake)
                score = self.critic(fake, training=True)
            penalty = tf.reduce_mean((tf.norm(inner.gradient(score, fake), axis=1) - 1.0) ** 2)
            loss = tf.reduce_mean(score) - tf.reduce_mean(self.critic(real, training=True)) + 10.0 * penalty
        weights = self.critic.trainable_variables
        self.critic_optimizer.apply_gradients(zip(tape.gradient(loss, weights), weights, strict=True))
        with tf.GradientTape() as tape:
            generator_loss = -tf.reduce_mean(self.critic(self.generator(noise, training=True), training=True))
        weights = self.generator.trainable_variables
        self.generator_optimizer.apply_gradients(zip(tape.gradient(generator_loss, weights), weights, strict=True))
        return {"critic": loss, "generator": generator_loss}


def gan() -> Captured:
    model = Gan()
    model.compile()
    real = normal(BATCH, 256)
    return capture_model(model, real), [real]


def custom_loop() -> Captured:
    weights = [tf.Variable(normal(256, 512)), tf.Variable(normal(512, 256)), tf.Variable(normal(256, 1))]
    slots = [tf.Variable(tf.zeros_like(w)) for w in weights]

    @tf.function
    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            h = x
            for w in weights[:2]:
                h = tf.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, tf.tanh(h)), [0, tf.matmul(h, w)])[1]
            error = tf.matmul(h, weights[2]) - y
            loss = tf.reduce_mean(error**2)
        for w, slot, gradient in zip(weights, slots, tape.gradient(loss, weights), strict=True):
            slot.assign(0.9 * slot + gradient)
            w.assign_sub(0.01 * slot)
        return loss

    arguments = (normal(BATCH, 256), normal(BATCH, 1))
    return capture_function(step, arguments, {}), flat_tensors(arguments)


def mixed_float16() -> Captured:
    keras.config.set_dtype_policy("mixed_float16")
    layers = [keras.layers.Dense(256, activation="relu") for _ in range(3)]
    model = keras.Sequential([keras.Input([128]), *layers, keras.layers.Dense(10, dtype="float32")])
    return of_model(model, normal(BATCH, 128), normal(BATCH, 10), "mse")


def regularized() -> Captured:
    """The gradient of a weight penalty is a constant as large as the weight: TensorFlow keeps it for good."""
    penalised = [keras.layers.Dense(256, activation="relu", kernel_regularizer="l2") for _ in range(2)]
    last = keras.layers.Dense(10, kernel_constraint=keras.constraints.MaxNorm(2.0))
    model = keras.Sequential([keras.Input([128]), *penalised, last])
    return of_model(model, normal(BATCH, 128), normal(BATCH, 10), "mse")


def branching() -> Captured:
    """Branches of different shapes, their gradients, and an update every third step."""
    wide, narrow = tf.Variable(0.1 * normal(128, 512)), tf.Variable(0.1 * normal(128, 64))
    count, total = tf.Variable(0), tf.Variable(tf.zeros([128, 512]))

    @tf.function
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            y = tf.cond(tf.reduce_mean(x**2) > 0.5, lambda: tf.nn.gelu(x @ wide), lambda: tf.nn.gelu(x @ narrow))
            loss = tf.reduce_sum(y**2)
        gradients = tape.gradient(loss, [wide, narrow])
        narrow.assign_sub(0.001 * gradients[1])
        total.assign_add(gradients[0])
        if count.assign_add(1) % 3 == 0:
            wide.assign_sub(0.001 * total)
            total.assign(tf.zeros([128, 512]))
        return loss

    return capture_function(step, (normal(BATCH, 128),), {}), [normal(BATCH, 128)]


class SometimesSkipped(keras.layers.Layer):
    """Stochastic depth: a block that `tf.cond` runs or leaves out."""

    def __init__(self, filters: int, seed: int) -> None:
        super().__init__()
        self.inner = [keras.layers.Conv2D(filters, 3, padding="same"), keras.layers.BatchNormalization()]
        self.draw = keras.random.SeedGenerator(seed)

    def build(self, shape: Any) -> None:
        for layer in self.inner:
            layer.build(shape)

    def call(self, x: Any, training: bool = False) -> Any:
        runs = keras.random.uniform((), seed=self.draw) < 0.8
        return tf.cond(runs, lambda: x + self.inner[1](tf.nn.relu(self.inner[0](x)), training=training), lambda: x)


def stochastic_depth() -> Captured:
    """What the gradients of branches want the shapes of only is not kept."""
    blocks = [SometimesSkipped(8, seed) for seed in range(3)]
    layers = [keras.layers.Conv2D(8, 3), *blocks, keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input([24, 24, 3]), *layers])
    return of_model(model, normal(BATCH, 24, 24, 3), normal(BATCH, 2), "mse")


def conv_lstm() -> Captured:
    """Convolutions in the body of a loop are other kernels than outside, with columns of patches beside them."""
    layers = [keras.layers.ConvLSTM2D(4, 3), keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(2)]
    model = keras.Sequential([keras.Input([4, 12, 12, 2]), *layers])
    return of_model(model, normal(BATCH, 4, 12, 12, 2), normal(BATCH, 2), "mse", "sgd")


class Compiled(keras.layers.Layer):
    """A layer whose arithmetic XLA compiles, with a weight that it reads there."""

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight([shape[-1], 64])

    @tf.function(jit_compile=True)  # type: ignore[untyped-decorator]  # TensorFlow ships no types
    def call(self, x: Any) -> Any:
        return tf.nn.gelu(x @ tf.convert_to_tensor(self.kernel)) - tf.reduce_mean(x, -1, keepdims=True)


def compiled_calls() -> Captured:
    """Parts that XLA compiles: convolutions in groups, since Keras has it so, and a layer that asks for it."""
    layers = [keras.layers.Conv2D(16, 3, groups=16), keras.layers.Conv2D(16, 3, groups=16), keras.layers.Flatten()]
    model = keras.Sequential([keras.Input([16, 16, 16]), *layers, Compiled(), keras.layers.Dense(2)])
    return of_model(model, normal(BATCH, 16, 16, 16), normal(BATCH, 2), "mse")


MODELS: dict[str, Callable[[], Captured]] = {
    make.__name__: make
    for make in (
        mlp, averaged, cnn, lstm, transformer, embedding, embedding_adagrad, gan, custom_loop, mixed_float16,
        regularized, branching, stochastic_depth, conv_lstm, long_attention, compiled_calls,
    )
}  # fmt: skip


class State:
    """Every variable that a step closes over: weights, slots, statistics, seeds, metrics."""

    def __init__(self, step: Step) -> None:
        self._handles = [outside for _, outside in step.captured if outside.dtype == tf.resource]
        self._dtypes = [tf.as_dtype(handle._handle_data.shape_and_type[0].dtype) for handle in self._handles]

    def read(self) -> list[Any]:
        pairs = zip(self._handles, self._dtypes, strict=True)
        return [tf.raw_ops.ReadVariableOp(resource=h, dtype=d).numpy().copy() for h, d in pairs]

    def write(self, values: list[Any]) -> None:
        for handle, value in zip(self._handles, values, strict=True):
            tf.raw_ops.AssignVariableOp(resource=handle, value=tf.constant(value))


def measured(step: Step, arguments: list[Any]) -> dict[str, Any]:
    """Predicted and real bytes of the step in its fixed order."""
    if needs_rehearsal(step.program, choose_branches=True):
        step = replace(step, program=rehearse(step, arguments, BATCH, choose_branches=True))
    program = program_as_it_lies(step)
    order = tidy_order(program, BATCH)
    timeline = simulate(program, BATCH, order)
    call = as_function(step, ordered_graph(step.graph_def, order), timeline.preparation)
    profile.reset_peak()
    for _ in range(MOST_STEPS):
        call(*arguments)
    peak = profile.device_bytes()["peak"]
    watched = [profile.memory_events(lambda: call(*arguments)) for _ in range(STEPS)]
    return {
        "predicted_peak": timeline.chunk_peak,
        "measured_peak": peak,
        "predicted_step": timeline.peak - timeline.resident,
        "measured_step": max(map(profile.requested_peak, watched)),
        "treatments": sorted({note.treatment for note in program.notes}),
    }


def compared(step: Step, arguments: list[Any]) -> dict[str, Any]:
    """Three steps in the fixed order and three as TensorFlow likes, from the same start: bit for bit."""
    state = State(step)
    start = state.read()
    ends, results = [], []
    order = tidy_order(step.program, BATCH)
    for graph_def in (step.graph_def, ordered_graph(step.graph_def, order)):
        state.write(start)
        call = as_function(step, graph_def)
        outputs = [[t.numpy().tobytes() for t in call(*arguments)] for _ in range(STEPS)]
        results.append(outputs)
        ends.append(state.read())
    changed = sum(a.tobytes() != b.tobytes() for a, b in zip(start, ends[0], strict=True))
    different = sum(a.tobytes() != b.tobytes() for a, b in zip(*ends, strict=True))
    finite = all(np.isfinite(value).all() for value in ends[0] if value.dtype.kind == "f")
    return {
        "variables": len(start),
        "changed": changed,
        "different": different,
        "same_outputs": results[0] == results[1],
        "finite": finite,
    }


def main(name: str) -> None:
    keras.utils.set_random_seed(1)
    step, arguments = MODELS[name]()
    answer: dict[str, Any] = measured(step, arguments)
    tf.config.experimental.enable_op_determinism()
    answer.update(compared(step, arguments))
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1])
