"""Scripts that `benchmarks.run` runs plainly and watched, taking turns: each times its own steps.

    python benchmarks/run_child.py keras|small|large|function|eager SOCKET

Scripts as a user would have them: they know nothing of Lowtide. Before each block of steps a script waits for its turn
at SOCKET; after it, it sends begin and end of each step by the clock, and what it took of the processors. The last
answer has the process's highest RSS.
"""

from __future__ import annotations

import json
import resource
import socket
import sys
import time
from typing import Any

import keras
import numpy as np
import tensorflow as tf

STEPS_A_BLOCK = {"keras": 48, "small": 1500, "large": 8, "function": 40, "eager": 24}
"""About one and a half seconds: a script that trains does not stop and begin again all the time."""
BATCH = {"keras": 64, "small": 32, "large": 8, "function": 64, "eager": 32}


class Turns:
    """Waits for a turn, times the steps of a block, and tells."""

    def __init__(self, address: str, steps: int) -> None:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(address)
        self._stream = connection.makefile("rw")
        self._steps = steps
        self._times: list[tuple[float, float]] = []
        self._cpu = 0.0
        self.over = False

    def wait(self) -> None:
        """For the next block, or for the end of all: then the highest RSS is told at once, since `fit` may take minutes
        to return, waiting for a thread of tf.data's that sleeps."""
        self.over = self._stream.readline().strip() != "go"
        if self.over:
            self.tell({"rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10})
        self._cpu = time.process_time()

    def step(self, began: float) -> None:
        self._times.append((began, time.time()))
        if len(self._times) == self._steps:
            self.tell({"times": self._times, "cpu": time.process_time() - self._cpu})
            self._times = []
            self.wait()

    def tell(self, what: dict[str, Any]) -> None:
        self._stream.write(json.dumps(what) + "\n")
        self._stream.flush()


class Clock(keras.callbacks.Callback):
    """Times the batches of `fit`."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self._turns = turns
        self._began = 0.0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._began = time.time()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._turns.step(self._began)
        self.model.stop_training = self._turns.over


def model() -> Any:
    return keras.Sequential(
        [
            keras.Input([32, 32, 3]),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(64, 3, activation="relu"),
            keras.layers.Flatten(),
            keras.layers.Dense(128, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def small_model() -> Any:
    layers = keras.layers
    return keras.Sequential([keras.Input([20]), layers.Dense(64, activation="relu"), layers.Dense(10)])


def large_model() -> Any:
    return keras.applications.ResNet50(weights=None, input_shape=(64, 64, 3), classes=10, classifier_activation=None)


MODELS = {"keras": model, "small": small_model, "large": large_model}


def with_keras(kind: str, turns: Turns) -> None:
    network = MODELS[kind]()
    network.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    count = BATCH[kind] * (500 if kind == "small" else 100)
    x = np.random.rand(count, *network.input_shape[1:]).astype("float32")
    y = np.random.randint(0, 10, count)
    turns.wait()
    network.fit(x, y, batch_size=BATCH[kind], epochs=10**6, verbose=0, callbacks=[Clock(turns)])


def by_hand(kind: str, turns: Turns) -> None:
    network, optimizer = model(), keras.optimizers.Adam()
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer.build(network.trainable_variables)
    x, y = tf.random.normal([BATCH[kind], 32, 32, 3]), tf.zeros([BATCH[kind]], tf.int32)

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(y, network(x, training=True))
        gradients = tape.gradient(loss, network.trainable_variables)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))
        return loss

    run = tf.function(step) if kind == "function" else step
    turns.wait()
    while not turns.over:
        began = time.time()
        float(run(x, y))
        turns.step(began)


def main(kind: str, address: str) -> None:
    turns = Turns(address, STEPS_A_BLOCK[kind])
    (with_keras if kind in MODELS else by_hand)(kind, turns)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
