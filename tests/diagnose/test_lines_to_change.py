"""From where bytes show to the line that the user would change: one step back in the code, where that is sure."""

from __future__ import annotations

from dataclasses import replace

from lowtide.diagnose import ADVICE, PROBLEM, diagnose
from lowtide.program import Source
from lowtide.record import Made, Recording
from tests.diagnose.examples import MIB, at, census, detail, given, held, recording, site, traces


def first(run: Recording) -> tuple[str, Source | None]:
    found = diagnose(run)[0]
    return found.id, found.source


def test_a_list_argument_of_ever_another_length_is_stacked_where_it_is_passed() -> None:
    code = "@tf.function(reduce_retracing=True)\ndef learn(frames): ...\nfor step in range(20):\n    learn(frames)\n"
    one = "TensorSpec(shape=(8,), dtype=tf.float32)"
    causes = traces(
        20, lambda i: f"argument frames: List[{one}] became List[{one}, Tens" if i else "first call", line=4
    )
    found = diagnose(recording(code, host=5, traces=causes))[0]
    assert (found.id, found.source) == ("retrace-by-value", at(4))
    assert "tf.stack" in found.fix
    shapes = traces(20, lambda i: f"argument frames: List[{one}] became List[{one.replace('8', '9')}]", line=4)
    assert first(recording(code, host=5, traces=shapes)) == ("retrace-by-shape", at(1))


def sampled(run: Recording, line: int) -> Recording:
    return replace(run, samples=tuple(sample._replace(source=at(line)) for sample in run.samples))


def test_growth_on_a_line_is_where_what_it_fills_is_put() -> None:
    code = "for step in range(20):\n    note = Note()\n    run(x, note)\n    notes.append(note)\n    count[step] = 1\n"
    assert first(sampled(recording(code, host=5, kind="run", line=3), 3)) == ("host-growth", at(4))


def test_variables_of_an_object_that_is_made_anew_are_where_that_is_made() -> None:
    code = "for epoch in range(20):\n    saver = Saver(net)\n    saver.save(path)\n"
    made = (Made("variable", "ResourceVariable", at(3), 20),)
    assert first(recording(code, host=5, line=3, made=made)) == ("variables-made-again", at(2))
    outside = "saver = Saver(net)\nfor epoch in range(20):\n    saver.save(path)\n"
    assert first(recording(outside, host=5, line=3, made=made)) == ("variables-made-again", at(3))


def test_growth_beside_the_training_is_named_by_its_own_steps() -> None:
    code = "count = len(list(batches))\nmodel.fit(batches)\n"
    run = recording(code, kind="fit", line=2)
    taken = [s._replace(kind="next", source=at(1), device_bytes=(50 + 9 * i) * MIB) for i, s in enumerate(run.steps)]
    later = [s._replace(start=s.start + 100, stop=s.stop + 100) for s in run.steps]
    assert first(replace(run, steps=(*taken, *later))) == ("device-growth", at(1))
    among = diagnose(replace(run, steps=(*taken, *run.steps)))
    assert at(1) not in [f.source for f in among if f.id == "device-growth"], "they see what the training leaves"


LOOP = """\
def rollout(h):
    for _ in tf.range(40):
        h = tf.tanh(h @ (w / tf.norm(w)))
    return h
"""


def stacked(code: str) -> Recording:
    weight = (site("w", 9, "Variable"), "parameters", 1, 0, None, "(64, 64)")
    turns = [(site("while/truediv", 3, mode="graph"), "other", 3, i + 1, 90, "[64,64]") for i in range(40)]
    back = (site("gradients/while/mul", 3, mode="graph"), "gradients", 1, 45, 60, "[64,64]")
    return recording(code, kind="gradient", line=7, details=(detail([weight, *turns, back]),))


def test_what_a_loop_computes_alike_in_each_turn_belongs_before_it() -> None:
    found = diagnose(stacked(LOOP))[0]
    assert (found.id, found.source) == ("loop-keeps-every-turn", at(3))
    assert "before the loop" in found.fix
    changing = LOOP.replace("(w / tf.norm(w))", "(h / tf.norm(h))")
    assert first(stacked(changing)) == ("loop-keeps-every-turn", at(2)), "each turn has another"


def loaded(code: str) -> Recording:
    parts = [
        (site("w", 2, "Variable"), "parameters", 150, 0, None, "(9, 9)"),
        (site("m", 2, "Variable"), "optimizer state", 300, 0, None, "(9, 9)"),
    ]
    run = recording(code, kind="fit", steps=3, line=1, details=(detail(parts, step=1),))
    return replace(run, samples=tuple(s._replace(source=at(1 if s.time < 3.5 else 2)) for s in run.samples))


def test_slots_that_come_with_a_loaded_model_are_for_nothing_if_nothing_is_trained_after() -> None:
    code = "model.fit(x)\nmodel = load_model(path)\nmodel(x)\n"
    found = diagnose(loaded(code))[0]
    assert (found.id, found.severity, found.source) == ("optimizer-state", PROBLEM, at(2))
    assert found.saving_bytes == 300 * MIB
    bare = diagnose(loaded(code.replace("path)", "path, compile=False)")))
    assert [f.severity for f in bare if f.id == "optimizer-state"] == [ADVICE]


def test_an_ensemble_that_is_put_together_once_and_gone_through_is_wanted() -> None:
    holder = "members (list of 20, global of train.py)"
    rows = (held("model", holder, 20, 0, 1), held("variable", "", 20, 300, 1))
    code = "members = [load(path) for path in paths]\nvotes = sum(member(x) for member in members)\n"
    kept = {f.severity for f in diagnose(recording(code, kind="call", line=2, census=rows)) if f.id == "models-kept"}
    assert kept == {ADVICE}
    never = code.replace("sum(member(x) for member in members)", "members[-1](x)")
    kept = {f.severity for f in diagnose(recording(never, kind="call", line=2, census=rows)) if f.id == "models-kept"}
    assert kept == {PROBLEM}


def test_cycles_stay_because_the_collector_is_off() -> None:
    code = "import gc\ngc.disable()\nfor step in range(20):\n    node = Node(node)\n"
    rows = census(held("tensor", "Node.hidden (a reference cycle)", 20, 200, 4))
    assert first(recording(code, device=5, line=4, census=rows)) == ("tensors-kept", at(2))


def test_a_model_that_is_called_as_often_as_it_trains_is_not_called_on_everything() -> None:
    code = "for step in range(2):\n    fake = generator(z)\n    tape.gradient(loss, w)\n"
    one = detail([(site("Relu", 2), "temporaries", 300, 5, 90, "(32768, 256)")], step=0)
    run = recording(code, kind="call", line=2, steps=2, details=(one,))
    trained = tuple(step._replace(kind="gradient", source=at(3)) for step in run.steps)
    assert "called-on-everything" not in {f.id for f in diagnose(replace(run, steps=(*run.steps, *trained)))}
    assert "called-on-everything" in {f.id for f in diagnose(replace(run, steps=(*run.steps, trained[0])))}


def test_data_that_a_function_returns_straight_to_fit_is_made_there() -> None:
    code = "def encode(codes):\n    return to_categorical(codes)\nother = load()\nmodel.fit(encode(codes), other)\n"
    data = (given("fit", 100, "float64", line=4),)
    assert first(recording(code, kind="fit", line=4, data=data)) == ("float64-data", at(2))


def test_a_table_is_made_dense_by_the_penalty_on_it() -> None:
    code = "rows = tf.gather(table, ids)\npenalty = tf.nn.l2_loss(table)\ntape.gradient(penalty, table)\n"
    table = (site("table", 9, "Variable"), "parameters", 50, 0, None, "[50000,256]")
    summed = (site("UnsortedSegmentSum", 1), "temporaries", 80, 10, 80, "[50000,256]")
    run = recording(code, line=3, details=(detail([table, summed]),))
    assert first(run) == ("dense-gradient", at(2))
    without = replace(run, sources={file: text.replace("l2_loss", "relu") for file, text in run.sources.items()})
    assert first(without) == ("dense-gradient", at(1))


def test_averages_of_weights_are_where_they_are_asked_for() -> None:
    code = "opt = SGD(0.1, use_ema=True)\nopt.apply(g)\n"
    parts = [
        (site("w", 1, "Variable"), "parameters", 150, 0, None, "(9, 9)"),
        (site("sgd/w_average", 2, "Variable"), "optimizer state", 150, 0, None, "(9, 9)"),
    ]
    made = (Made("optimizer", "SGD", at(1), 1),)
    found = diagnose(recording(code, kind="update", line=2, details=(detail(parts),), made=made))[0]
    assert (found.id, found.severity, found.source) == ("optimizer-state", ADVICE, at(1))
    plain = recording(code.replace("True", "False"), kind="update", line=2, details=(detail(parts),), made=made)
    assert "optimizer-state" not in {f.id for f in diagnose(plain)}
