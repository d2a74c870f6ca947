"""Who made a buffer at the peak: the user's line, or the optimizer that the user chose."""

from __future__ import annotations

from dataclasses import replace

from lowtide.diagnose import ADVICE, PROBLEM, diagnose
from lowtide.record import Made, Recording
from tests.diagnose.examples import MIB, at, detail, recording, site, tape, traces

CODE = "model = Sequential([Embedding(50000, 256)])\nmodel.compile(Adam())\nmodel.fit(x)\n"
TABLE = "[50000,256]"


def sums_of_a_table(*names: str) -> Recording:
    """Adam trains a table, and the gathered rows are summed by ops of these names."""
    table = [
        (site("embedding/table", 1, "Variable", "embedding"), "parameters", 50, 0, None, TABLE),
        (site("adam/table_momentum", None, "Variable"), "optimizer state", 50, 0, None, TABLE),
        (site("adam/table_velocity", None, "Variable"), "optimizer state", 50, 0, None, TABLE),
    ]
    sums = [(site(name, 3, "UnsortedSegmentSum", mode="graph"), "temporaries", 80, 10, 80, TABLE) for name in names]
    made = (Made("optimizer", "Adam", at(2), 1),)
    return recording(CODE, kind="fit", line=3, details=(detail([*table, *sums]),), made=made)


def test_a_table_that_only_the_optimizer_makes_dense_is_the_optimizers_cost() -> None:
    found = diagnose(sums_of_a_table("adam/UnsortedSegmentSum", "adam/UnsortedSegmentSum_1"))
    assert [(f.id, f.severity, f.source) for f in found] == [("optimizer-state", ADVICE, at(2))]
    assert found[0].bytes == 260 * MIB


def test_a_table_that_is_dense_before_the_optimizer_is_a_problem_of_its_own() -> None:
    found = diagnose(sums_of_a_table("global_norm/UnsortedSegmentSum"))
    assert (found[0].id, found[0].source) == ("dense-gradient", at(1))


def test_of_two_lines_with_nearly_the_same_the_one_that_only_widens_is_named() -> None:
    both = [
        (site("dense/MatMul", 1, "MatMul", mode="graph"), "activations", 130, 5, 90, "(1024, 20000)"),
        (site("one_hot", 2, "OneHot", mode="graph"), "temporaries", 128, 5, 90, "(1024, 20000)"),
    ]
    run = recording("y = dense(x)\nt = tf.one_hot(x, 20000)\nloss(y, t)\n", kind="call", details=(detail(both),))
    assert (diagnose(run)[0].id, diagnose(run)[0].source) == ("peak-by-line", at(2))


def test_of_lines_of_a_function_with_the_same_form_the_first_is_named() -> None:
    code = "def distances(z):\n    diff = z[:, None] - p[None]\n    return tf.square(diff)\ndistances(x)\n"
    parts = [
        (site("Square", 3), "temporaries", 140, 5, 90, "(1024, 256, 96)"),
        (site("Sub", 2), "temporaries", 128, 5, 90, "(1024, 256, 96)"),
    ]
    assert diagnose(recording(code, kind="call", details=(detail(parts),)))[0].source == at(2)
    other = [parts[0], (*parts[1][:5], "(9, 9)")]
    assert diagnose(recording(code, kind="call", details=(detail(other),)))[0].source == at(3)


def test_a_layer_written_out_is_named_where_it_is_made() -> None:
    code = "model = Sequential([\n    GRU(32, unroll=True),\n])\nmodel.fit(x)\n"
    ops = [(site(f"gru/{i}", 2, "Mul", "gru/cell", "graph"), "activations", 0.01, 5, 90, "(9,)") for i in range(1600)]
    trace = traces(1, lambda i: "first call", size=60)[0]._replace(nodes=5000, defined=None)
    run = recording(code, kind="fit", line=4, details=(detail(ops),), traces=(trace,))
    assert [(f.id, f.source) for f in diagnose(run)] == [("python-loop-unrolled", at(2))]
    few = recording(code, kind="fit", line=4, details=(detail(ops[:900]),), traces=(trace,))
    assert diagnose(few) == []


def test_what_a_tape_lets_go_is_seen_between_two_updates() -> None:
    code = (
        "for x in data:\n    with tf.GradientTape() as tape:\n        y = loss(f(x))\n        v = loss(f(held))\n"
        "    opt.apply(tape.gradient(y, w))\n"
    )
    whole = detail([
        (site("Tanh", 3), "activations", 30, 5, 60, "(9, 9)"),
        (site("Tanh_1", 4), "temporaries", 200, 10, 22, "(9, 9)"),
        (site("Sum", 4), "temporaries", 1, 20, 40, "()"),
        (site("Neg", 5), "temporaries", 1, 25, 30, "()"),
        (site("TanhGrad", 5), "gradients", 10, 40, 45, "(9, 9)"),
    ])  # fmt: skip
    run = recording(code, line=5, details=(whole,), tapes=(tape(watched=3, used=3)._replace(source=at(2)),))
    steps = tuple(step._replace(kind="update") if n % 2 else step for n, step in enumerate(run.steps))
    found = diagnose(replace(run, steps=steps))
    assert [(f.id, f.source, f.bytes) for f in found[:1]] == [("tape-records-unused", at(4), 200 * MIB)]


def test_most_of_a_small_devices_peak_is_worth_a_word() -> None:
    def lines(*sizes: float) -> Recording:
        parts = [(site(f"Mul_{i}", i + 1), "temporaries", size, 5, 90, "(9, 9)") for i, size in enumerate(sizes)]
        return recording("a\nb\nc\nd\n", kind="call", details=(detail(parts),))

    assert [f.source for f in diagnose(lines(70, 20))] == [at(1)]
    assert diagnose(lines(70, 69, 68)) == []


def test_an_update_on_the_line_of_the_gradient_is_not_the_way_back() -> None:
    code = "for x in data:\n    with tf.GradientTape() as tape:\n        y = f(x)\n    opt.apply(tape.gradient(y, h))\n"
    both = detail([
        (site("Sub", 4), "temporaries", 1, 1, 3, "(9,)"),  # of the step before
        (site("Sigmoid", 3), "activations", 80, 10, 60, "(9, 9)"),
        (site("SigmoidGrad", 4), "gradients", 10, 40, 45, "(9, 9)"),
    ])  # fmt: skip
    watched = tape(watched=9, used=1)._replace(source=at(2))
    found = diagnose(recording(code, line=4, details=(both,), tapes=(watched,)))
    assert (found[0].id, found[0].source) == ("tape-records-unused", at(2))


def test_a_loop_that_writes_what_no_gradient_needs_is_named_where_it_writes() -> None:
    code = "@tf.function\ndef f(u):\n    for i in tf.range(50):\n        u = g(u)\n        out = out.write(i, u)\n"
    turns = [(site("while/body/mul", 4, mode="graph"), "other", 3, i + 1, 90, "(9, 9)") for i in range(40)]
    run = recording(f"{code}f(x)\n", kind="function", line=6, details=(detail(turns),))
    assert (diagnose(run)[0].id, diagnose(run)[0].source) == ("loop-keeps-every-turn", at(5))
    back = (site("gradient_tape/while/body/mul", 4, mode="graph"), "gradients", 1, 50, 90, "(9, 9)")
    backward = recording(f"{code}f(x)\n", kind="function", line=6, details=(detail([*turns, back]),))
    assert diagnose(backward)[0].source == at(3)
    named = "def body(i, u, out):\n    out = out.write(i, u)\n    return i + 1, u, out\ntf.while_loop(more, body, s)\n"
    assert diagnose(recording(named, kind="function", line=6, details=(detail(turns),)))[0].source == at(2)


def test_a_model_called_beside_fit_on_more_than_a_batch_is_an_evaluation() -> None:
    run = recording("model.fit(x)\nscore(model(validation))\n", kind="fit")
    call = run.steps[-1]._replace(kind="call", source=at(2), device_peak_bytes=400 * MIB)
    found = diagnose(replace(run, steps=(*run.steps[:-1], call)))
    assert [(f.id, f.severity, f.source) for f in found] == [("evaluated-at-once", ADVICE, at(2))]


ATTACK = """\
def attack(x):
    for _ in range(6):
        with GradientTape() as inner:
            y = model(x)
        x += inner.gradient(y, x)
    return x
with GradientTape() as outer:
    loss = f(attack(x))
outer.gradient(loss, w)
"""


def test_a_tape_around_the_steps_of_a_function_is_named_by_the_call_of_that() -> None:
    around = tape(made=1, alive=0, most_steps=6)._replace(source=at(7))
    run = recording(ATTACK, device=5, line=5, tapes=(around,))
    assert (diagnose(run)[0].id, diagnose(run)[0].source) == ("tape-spans-steps", at(8))


def test_slots_of_several_optimizers_for_the_same_weights_are_a_problem() -> None:
    code = "opts = {t: Adam() for t in tasks}\nfor opt in opts.values():\n    opt.build(weights)\ntrain()\n"
    parts = [(site("w", 4, "Variable"), "parameters", 20, 0, None, "(9, 9)")]
    parts += [(site(f"m{i}", 3, "Variable"), "optimizer state", 40, 0, None, "(9, 9)") for i in range(6)]
    made = (Made("optimizer", "Adam", at(1), 6),)
    found = diagnose(recording(code, kind="update", line=4, details=(detail(parts),), made=made))
    assert (found[0].id, found[0].severity, found[0].source) == ("optimizer-state", PROBLEM, at(3))
    assert found[0].saving_bytes == 200 * MIB
    alone = diagnose(recording(code, kind="update", line=4, details=(detail(parts[:2]),), made=made))
    assert not alone


def test_a_loop_without_a_gradient_keeps_results_that_somebody_asked_for() -> None:
    code = "def last(x):\n    return tf.scan(cell, x)[-1]\nfor x in data:\n    last(x)\n"
    turns = [(site("scan/while/Tanh", 2, mode="graph"), "other", 3, i + 1, 90, "(9, 9)") for i in range(40)]
    back = (site("gradient_tape/while/Mul", 2, mode="graph"), "gradients", 1, 50, 90, "(9, 9)")
    told = [
        diagnose(recording(code, kind="call", line=4, details=(detail(parts),)))[0] for parts in (turns, [*turns, back])
    ]
    assert [f.id for f in told] == ["loop-keeps-every-turn"] * 2
    assert ["no gradient" in f.title for f in told] == [True, False]
    assert told[0].source == at(2)
