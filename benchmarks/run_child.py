"""Scripts that `benchmarks.run` runs plainly and watched: each times its own steps and prints them at its end.

    python benchmarks/run_child.py keras|function|eager OUT

A script as a user would have it: it knows nothing of Lowtide. It writes seconds of each step and the process's highest
RSS to OUT as JSON; `cpu` has the processor seconds of each step, all threads, which a busy machine changes less.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

STEPS = {"keras": 250, "function": 400, "eager": 150}
BATCH = 64


Step = tuple[float, float]
"""Seconds by the clock, and of the processors."""


def now() -> Step:
    return time.perf_counter(), time.process_time()


def since(began: Step) -> Step:
    wall, cpu = now()
    return wall - began[0], cpu - began[1]


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


class Clock(keras.callbacks.Callback):  # type: ignore[misc]  # Keras ships no types
    """Times the batches of `fit`."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self._began = (0.0, 0.0)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._began = now()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.steps.append(since(self._began))


def with_keras() -> list[Step]:
    network = model()
    network.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    clock = Clock()
    count = BATCH * STEPS["keras"]
    x, y = np.random.rand(count, 32, 32, 3).astype("float32"), np.random.randint(0, 10, count)
    network.fit(x, y, batch_size=BATCH, epochs=1, verbose=0, callbacks=[clock])
    return clock.steps


def by_hand(compiled: bool) -> list[Step]:
    network, optimizer = model(), keras.optimizers.Adam()
    loss_of = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer.build(network.trainable_variables)
    x, y = tf.random.normal([BATCH, 32, 32, 3]), tf.zeros([BATCH], tf.int32)

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(y, network(x, training=True))
        gradients = tape.gradient(loss, network.trainable_variables)
        optimizer.apply_gradients(zip(gradients, network.trainable_variables, strict=True))
        return loss

    run = tf.function(step) if compiled else step
    steps = []
    for _ in range(STEPS["function" if compiled else "eager"]):
        began = now()
        float(run(x, y))
        steps.append(since(began))
    return steps


def main(kind: str, out: str) -> None:
    steps = with_keras() if kind == "keras" else by_hand(kind == "function")
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    times = {"seconds": [wall for wall, _ in steps], "cpu": [cpu for _, cpu in steps]}
    Path(out).write_text(json.dumps({**times, "rss_bytes": highest}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
