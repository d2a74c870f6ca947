"""A model trains inside a budget, on an allocator that has no more, and ends up with the same bits."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tf.children import run_script

pytestmark = pytest.mark.tensorflow

CHILD = """
import json
import keras, numpy as np, tensorflow as tf
tf.config.experimental.enable_op_determinism()
keras.utils.set_random_seed(3)
import lowtide
from dataclasses import replace
from lowtide.plan.aside import make_plan_aside
from lowtide.simulate import simulate, tidy_order
from lowtide.tf import compat, profile
from lowtide.tf.rewrite import as_function, ordered_graph, planned_graph
from lowtide.tf.trace import capture_model, flat_tensors

layers = keras.layers
MODEL_HERE
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
y = tf.zeros((8,), tf.int32)
step = capture_model(model, (x, y))
step = replace(step, program=replace(step.program, chunks=profile.chunks()))
handles = [outside for _, outside in step.captured if outside.dtype == tf.resource]

def state():
    return [tf.raw_ops.ReadVariableOp(resource=h, dtype=tf.as_dtype(compat.variable_type(h)[0])).numpy().tobytes()
            for h in handles]

def values():  # copies: a view of a variable would make its next update copy it
    return [tf.raw_ops.ReadVariableOp(resource=h, dtype=tf.as_dtype(compat.variable_type(h)[0])).numpy().copy()
            for h in handles]

start = values()
before = simulate(step.program, 8, tidy_order(step.program, 8))
budget = int(before.chunk_resident + SHARE_HERE * (before.chunk_peak - before.chunk_resident))
plan = make_plan_aside(step.program, budget, 8, seconds=6)
call = as_function(step, planned_graph(step.graph_def, plan), plan.timeline.preparation)
arguments, peaks, planned_outputs = flat_tensors((x, y)), [], []
for _ in range(3):
    profile.reset_peak()
    planned_outputs.append([o.numpy().tobytes() for o in call(*arguments)])
    peaks.append(profile.device_bytes()["peak"])
planned = state()
for handle, value in zip(handles, start):
    tf.raw_ops.AssignVariableOp(resource=handle, value=tf.constant(value))
plain = as_function(step, ordered_graph(step.graph_def))  # as captured: no plan, nothing twice
outputs = [[o.numpy().tobytes() for o in plain(*arguments)] for _ in range(3)]
print(json.dumps({
    "same_state": planned == state(), "same_outputs": planned_outputs == outputs, "budget": budget,
    "peaks": peaks, "predicted": plan.peak,
    "copies": [op.kind for op in plan.program.ops if "/lowtide_again_" in op.name],
}))
"""

CONVOLUTIONS = """
blocks = [l for c in (16, 16, 32) for l in (layers.Conv2D(c, 3, padding="same"), layers.BatchNormalization(),
                                            layers.ReLU(), layers.Dropout(0.2))]
model = keras.Sequential([keras.Input((32, 32, 3)), *blocks, layers.GlobalAveragePooling2D(), layers.Dense(5)])
x = tf.random.normal((8, 32, 32, 3))
"""
LOOPS = """
stack = [layers.LSTM(256, return_sequences=True), layers.GRU(256, return_sequences=True), layers.LSTM(256)]
model = keras.Sequential([keras.Input((60, 16)), *stack, layers.Dense(5)])
x = tf.random.normal((8, 60, 16))
"""


def planned(model: str, share: float) -> Any:
    return run_script(CHILD.replace("MODEL_HERE", model).replace("SHARE_HERE", str(share)))

MODEL = """
import keras, numpy as np
keras.utils.set_random_seed(1)
layers = keras.layers
blocks = [l for c in (16, 16, 32, 32) for l in (layers.Conv2D(c, 3, padding="same"), layers.BatchNormalization(),
                                                layers.ReLU())]
model = keras.Sequential([keras.Input((64, 64, 3)), *blocks, layers.GlobalAveragePooling2D(), layers.Dense(5)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
"""

SCRIPT = MODEL + """x, y = np.random.rand(20, 64, 64, 3).astype("float32"), np.random.randint(0, 5, 20)
history = model.fit(x, y, batch_size=8, epochs=2, validation_data=(x[:4], y[:4]), verbose=0)
print("losses", len(history.history["loss"]), len(history.history["val_loss"]))
"""


@pytest.mark.parametrize(("model", "share", "again"), [(CONVOLUTIONS, 0.7, "Relu"), (LOOPS, 0.75, "While")])
def test_recomputation_and_order_leave_every_bit_as_it_was_and_keep_the_budget(
    model: str, share: float, again: str
) -> None:
    """Whole loops too, which read their weights in each trip."""
    found = planned(model, share)
    assert found["same_state"]
    assert found["same_outputs"]
    assert again in found["copies"]
    assert max(found["peaks"]) <= found["budget"]
    assert abs(found["predicted"] / max(found["peaks"]) - 1) < 0.02


def test_an_unmodified_script_trains_to_its_end_on_an_allocator_of_that_size(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "lowtide.cli.main", "fit", "--seconds", "6", "--budget"]
    done = subprocess.run([*command, "65%", str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip().endswith("losses 2 2")
    assert "recompute" in done.stderr
    refused = subprocess.run([*command, "8MiB", str(script)], capture_output=True, text=True, check=False)
    assert refused.returncode == 3
    assert "smallest budget reached" in refused.stderr.strip().splitlines()[-1]


def test_a_budget_that_is_gone_before_the_first_step_is_answered_with_the_smallest_that_would_do(
    tmp_path: Path,
) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"import tensorflow as tf\nE = tf.Variable(tf.ones((3000, 1000)))\n{SCRIPT}")
    command = [sys.executable, "-m", "lowtide.cli.main", "fit", "--seconds", "3", "--budget", "9MiB", str(script)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    words = refused.stderr.strip().splitlines()[-1]
    assert refused.returncode == 3, words
    assert "before its first training step" in words
    least = re.search(r"smallest budget for its step is (\d+)\.00 MiB", words)
    assert least is not None, words
    assert int(least[1]) > 3000 * 1000 * 4 >> 20


LARGE_DATA = MODEL + """x, y = np.random.rand(600, 64, 64, 3), np.random.randint(0, 5, 600)
options = dict(steps_per_epoch=2, validation_steps=2, validation_data=(x[:500], y[:500]))
history = model.fit(x, y, batch_size=8, epochs=2, verbose=0, **options)
print("losses", len(history.history["val_loss"]))
"""


def test_arrays_of_training_and_validation_data_are_not_of_the_budget(tmp_path: Path) -> None:
    """Together they are larger than it, and the validation's come after the plan."""
    script = tmp_path / "train.py"
    script.write_text(LARGE_DATA)
    command = [sys.executable, "-m", "lowtide.cli.main", "fit", "--seconds", "6", "--budget", "40MiB", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip().endswith("losses 2")


KEEPS_MORE = MODEL + """import tensorflow as tf
x, y = np.random.rand(48, 64, 64, 3).astype("float32"), np.random.randint(0, 5, 48)

class Keeps(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if batch == 2:
            self.kept = tf.ones((MIB << 18,))

history = model.fit(x, y, batch_size=8, verbose=0, callbacks=[Keeps()])
print("losses", len(history.history["loss"]))
"""


@pytest.mark.parametrize(("mib", "ends"), [(6, 0), (40, 1)], ids=["that leaves room", "that does not"])
def test_a_step_is_planned_anew_when_the_script_has_taken_a_part_of_the_budget(
    tmp_path: Path, mib: int, ends: int
) -> None:
    script = tmp_path / "train.py"
    script.write_text(KEEPS_MORE.replace("MIB", str(mib)))
    command = [sys.executable, "-m", "lowtide.cli.main", "fit", "--seconds", "3", "--budget", "39MiB", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == ends, done.stderr[-2000:]
    assert done.stderr.count("lowtide: planning") == (1 if ends else 2)
    if ends:
        assert "asked for more than the budget beside its planned step" in done.stderr.splitlines()[-1]


LENGTHS = """import keras, numpy as np, tensorflow as tf
keras.utils.set_random_seed(0)
layers = keras.layers
conv, norm = layers.Conv1D, layers.LayerNormalization
blocks = [l for _ in range(3) for l in (conv(64, 3, padding="same"), norm(), layers.ReLU())]
model = keras.Sequential([keras.Input((None, 16)), *blocks, layers.GlobalAveragePooling1D(), layers.Dense(3)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))

def batches():
    for length in (700, 600, 700, 600):
        yield np.random.rand(8, length, 16).astype("float32"), np.random.randint(0, 3, 8)

spec = tf.TensorSpec((None, None, 16), tf.float32), tf.TensorSpec((None,), tf.int64)
data = tf.data.Dataset.from_generator(batches, output_signature=spec).apply(tf.data.experimental.assert_cardinality(4))
model.fit(data, verbose=0)
print("trained")
"""


def test_sequences_of_other_lengths_run_by_the_plan_there_is(tmp_path: Path) -> None:
    """Each length has a graph of its own: a step that comes back finds others beside it."""
    done = _trained(tmp_path, LENGTHS, "60%")
    said = [line for line in done.stderr.splitlines() if "lowtide: planning" in line]
    assert len(said) >= 2
    assert all("unless an earlier plan will do" in line for line in said[1:])


ACCUMULATES = MODEL.replace('"adam"', "keras.optimizers.SGD(0.1, momentum=0.9, gradient_accumulation_steps=2)") + """
x, y = np.random.rand(48, 64, 64, 3).astype("float32"), np.random.randint(0, 5, 48)
model.fit(x, y, batch_size=8, epochs=2, verbose=0)
print("trained")
"""


def test_what_a_branch_brings_when_it_first_runs_was_planned_for(tmp_path: Path) -> None:
    done = _trained(tmp_path, ACCUMULATES, "75%")
    assert done.stderr.count("lowtide: planning") == 1


def _trained(folder: Path, script: str, budget: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(script)
    command = [sys.executable, "-m", "lowtide.cli.main", "fit", "--seconds", "3", "--budget", budget, "train.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip().endswith("trained")
    return done
