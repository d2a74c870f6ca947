"""What cannot be computed is tried out on two tiny batches; the answer is checked on steps whose truth is known."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tf.children import run_script

pytestmark = pytest.mark.tensorflow

STEPS = """
import json
import numpy as np
import tensorflow as tf
from lowtide.simulate import simulate
from lowtide.tf.rehearse import needs_rehearsal, rehearse
from lowtide.tf.trace import capture_function, flat_tensors

weight = tf.Variable(tf.ones([64, 64]))

def trained(compute):
    @tf.function
    def step(x):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(compute(tf.matmul(x, weight)))
        weight.assign_sub(1e-9 * tape.gradient(loss, weight))
        return loss
    return step

def over_the_batch(x):
    count = tf.shape(x)[0]
    return tf.while_loop(lambda i, x: i < count, lambda i, x: (i + 1, tf.tanh(x)), [0, x])[1]

def until_small(x):
    return tf.while_loop(lambda n, x: n > 1.0, lambda n, x: (n * 0.5, tf.tanh(x)), [tf.reduce_max(x) * 0 + 64.0, x])[1]

def half_of_the_rows(x):
    return tf.boolean_mask(x, tf.range(tf.shape(x)[0]) % 2 == 0)

def as_many_as_the_data_says(x):
    count = tf.cast(tf.reduce_sum(0.0 * x[:, 0] + 1.0), tf.int32)
    return tf.fill([count, 3], tf.reduce_sum(x))

def back_to_python(x):
    return tf.while_loop(lambda x: tf.py_function(lambda: False, [], tf.bool), lambda x: (x,), [x])[0]

answers = {}
for compute in (tf.tanh, over_the_batch, until_small, half_of_the_rows, as_many_as_the_data_says, back_to_python):
    arguments = (tf.ones([16, 64]),)
    step = capture_function(trained(compute), arguments, {})
    asked = needs_rehearsal(step.program)
    program = rehearse(step, flat_tensors(arguments), 16) if asked else step.program
    answers[compute.__name__] = {
        "asked": asked,
        "still": needs_rehearsal(program),
        "trips": sorted({str(op.trips) for op in program.ops if op.kind.endswith("While")}),
        "notes": [[note.what, note.treatment, note.why] for note in program.notes],
        "peak": simulate(program, 16).peak,
        "times": program.times,
        "filled": [
            [dim.at(16) for dim in program.values[op.outputs[0]].shape] for op in program.ops if op.kind == "Fill"
        ],
        "products": [op.name for op in program.ops if op.kind == "MatMul"],
    }
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers() -> Any:
    return run_script(STEPS)


def treatments(answer: Any) -> set[str]:
    return {treatment for _, treatment, _ in answer["notes"]}


def test_what_can_be_computed_is_not_tried_out(answers: Any) -> None:
    assert not answers["tanh"]["asked"]
    assert answers["tanh"]["notes"] == []


def test_a_loop_over_the_batch_turns_out_to_go_round_once_a_sample(answers: Any) -> None:
    assert answers["over_the_batch"]["trips"] == ["B"]
    weight, batch = 64 * 64 * 4, 16 * 64 * 4
    assert answers["over_the_batch"]["peak"] > weight + batch + 16 * batch  # what each trip keeps for the way back


def test_a_loop_that_the_data_ends_is_counted(answers: Any) -> None:
    assert answers["until_small"]["trips"] == ["6"]
    assert treatments(answers["until_small"]) == {"rehearsed"}


def test_a_shape_that_the_data_decides_is_bounded_or_measured(answers: Any) -> None:
    assert treatments(answers["half_of_the_rows"]) <= {"rehearsed", "bounded"}
    assert answers["half_of_the_rows"]["peak"] > 16 * 64 * 4


def test_a_step_that_calls_python_is_not_tried_out_and_says_so(answers: Any) -> None:
    assert treatments(answers["back_to_python"]) == {"assumed"}
    assert any("Python" in why for _, _, why in answers["back_to_python"]["notes"])


def test_what_was_tried_out_was_timed(answers: Any) -> None:
    batch, seconds = answers["until_small"]["times"]
    assert batch <= 16
    assert answers["until_small"]["products"]
    assert all(seconds[name] > 0 for name in answers["until_small"]["products"])
    assert answers["tanh"]["times"] is None


def test_no_question_stays_open(answers: Any) -> None:
    assert not any(answer["still"] for answer in answers.values())


def test_a_shape_that_was_seen_keeps_its_sides(answers: Any) -> None:
    """Ops that look at sides, not only at sizes, may come after."""
    assert answers["as_many_as_the_data_says"]["asked"]
    assert [16, 3] in answers["as_many_as_the_data_says"]["filled"]


def test_what_no_room_was_for_is_not_guessed_where_a_budget_rests_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorflow as tf

    from lowtide.errors import NotCapturable
    from lowtide.tf import fit
    from lowtide.tf.trace import capture_function

    weight, rows = tf.Variable(tf.ones([4, 4])), tf.ones([8, 4])

    @tf.function
    def train(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.fill([tf.cast(tf.reduce_sum(x), tf.int32), 3], tf.reduce_sum(x @ weight)))
        weight.assign_sub(tape.gradient(loss, weight))
        return loss

    def no_room(call: Any, arguments: Any, batch: int, tried: int) -> Any:
        raise tf.errors.ResourceExhaustedError(None, None, "OOM")

    step = capture_function(train, (rows,), {})
    monkeypatch.setattr("lowtide.tf.rehearse._tried", no_room)
    monkeypatch.setattr("lowtide.tf.fit.why_not_twice", lambda program: "")
    with pytest.raises(NotCapturable, match="depends on the data, and trying it out needs more memory than there is"):
        fit.settled(step, [rows], 8)
    assert weight.numpy().tolist() == tf.ones([4, 4]).numpy().tolist()
