"""`fit_within` and then everything that people do with `fit`: to the bit what the step without a plan does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.tf.children import lowtide, run_script
from tests.tf.fit_scenarios import COMPARED, OTHERS, optimizers_that_assign, places_of_variables

pytestmark = pytest.mark.tensorflow

APART = tuple(scenario.__name__ for scenario in (optimizers_that_assign, places_of_variables))
TOGETHER = tuple(scenario.__name__ for scenario in (*COMPARED, *OTHERS) if scenario.__name__ not in APART)
_answers: dict[tuple[str, ...], dict[str, Any]] = {}


def found(name: str) -> Any:
    """What one of two processes found out about all its scenarios: models of before, which TensorFlow keeps a part of,
    lie beside the steps. A process that failed is not run again."""
    names = APART if name in APART else TOGETHER
    if names not in _answers:
        _answers[names] = {}
        _answers[names] = run_script(f"from tests.tf.fit_scenarios import main\nmain({list(names)})\n")
    return _answers[names][name]


@pytest.mark.parametrize("name", [scenario.__name__ for scenario in (*COMPARED, OTHERS[0])])
def test_what_is_planned_leaves_the_same_bits_and_logs(name: str) -> None:
    assert found(name)["different_variables"] == 0
    assert found(name)["same_seen"]


def test_every_batch_is_trained_on_when_an_execution_has_several_steps() -> None:
    assert found("several_steps_per_execution")["seen"][-1] == 6


def test_release_and_another_compile_undo_it() -> None:
    assert found("undoing") == {"released": True, "compiled": True}


def test_a_budget_that_cannot_be_met_says_what_would_do_and_changes_nothing() -> None:
    answer = found("a_budget_that_cannot_be_met")
    assert answer["untouched"]
    assert answer["then"] <= 1.1 * answer["smallest"]
    words = answer["message"]
    assert "smallest budget reached" in words
    assert "set by" in words
    assert "16 bits save up to" in words
    assert "optimizer without slots saves up to" in words
    assert len(words.splitlines()) == 1


def test_variables_that_are_assigned_stay_where_they_are_and_are_not_copied_when_read() -> None:
    places = found("places_of_variables")
    assert places["large"] >= 8
    assert (places["moved"], places["copied_on_read"]) == (0, 0)


def test_a_variable_that_was_set_from_an_array_gets_a_place_on_the_device_before_it_is_planned() -> None:
    assert found("weights_set_from_an_array") == {"before": False, "after": True, "same": True}


def test_a_dimension_that_grows_by_itself_is_planned_for() -> None:
    """Fewer edges, or nodes, are covered; more edges are another step, more nodes a larger batch of one."""
    seen = found("dimensions_of_their_own")["seen"]
    assert seen == [[1, 8], [1, 8], [1, 8], [2, 8], [2, 2000]]


def test_a_step_may_return_nothing() -> None:
    assert found("nothing_returned") == {"returned": [None] * 3, "total": 48.0}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("eager", "run_eagerly=True"),
        ("not compiled", "model.compile"),
        ("no model", "received int"),
        ("no budget", "without a budget"),
        ("released", "received str"),
        ("no size", "'lots'"),
        ("nothing", "more than zero"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_one_line_with_the_way_out(name: str, words: str) -> None:
    said = found("refusals")[name]
    assert words in said
    assert len(said.splitlines()) == 1


SESSION = """
import tensorflow as tf
tf1 = tf.compat.v1
tf1.disable_eager_execution()
x, w = tf1.placeholder(tf.float32, [None, 4]), tf1.get_variable("w", [4, 1])
train = tf1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_mean(x @ w))
with tf1.Session() as session:
    session.run(tf1.global_variables_initializer())
    session.run(train, {x: [[1, 2, 3, 4]]})
"""

COMPILED = """
import keras, numpy as np
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
model.compile("sgd", "mse", jit_compile=True)
model.fit(np.ones((8, 4)), np.ones((8, 2)), verbose=0)
"""

MIRRORED = """
import keras, numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
model.fit(np.ones((8, 4)), np.ones((8, 2)), verbose=0)
"""

EAGER = """
import keras, tensorflow as tf
weight, optimizer = keras.Variable([1.0]), keras.optimizers.SGD()
with tf.GradientTape() as tape:
    loss = weight * 2.0
optimizer.apply(tape.gradient(loss, [weight.value]), [weight])
"""


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (SESSION, "put the step into a tf.function"),
        (COMPILED, "jit_compile=True"),
        (MIRRORED, "build it without a strategy"),
        (EAGER, "@tf.function"),
        ("print('hello')", "without a training step"),
    ],
    ids=["session", "xla", "mirrored", "eager", "nothing"],
)
def test_a_script_whose_step_cannot_be_planned_ends_with_one_line_and_2(
    tmp_path: Path, script: str, words: str
) -> None:
    path = tmp_path / "train.py"
    path.write_text(script)
    done = lowtide("fit", "--budget", "64MiB", str(path))
    assert done.returncode == 2
    said = [line for line in done.stderr.splitlines() if line.startswith("lowtide")]
    assert len(said) == 1, done.stderr
    assert words in said[0]


@pytest.mark.parametrize("way", ["jit_compile=True", "run_eagerly=True"])
def test_plan_refuses_what_fit_would(tmp_path: Path, way: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(COMPILED.replace("jit_compile=True", way))
    done = lowtide("plan", "--budget", "64MiB", str(path))
    assert done.returncode == 2
    assert way in done.stderr.splitlines()[-1]


def test_a_failure_after_memory_was_refused_is_told_as_one(tmp_path: Path) -> None:
    """What a library makes of it may be any error, and look like the script's own."""
    path = tmp_path / "train.py"
    path.write_text(
        "import tensorflow as tf\ntry:\n    tf.ones((64, 1 << 20))\nexcept Exception:\n    None.handle\n"
    )
    done = lowtide("fit", "--budget", "64MiB", str(path))
    assert done.returncode == 1
    assert "AttributeError" in done.stderr
    assert "had asked for more than the budget before its first training step" in done.stderr.splitlines()[-1]
