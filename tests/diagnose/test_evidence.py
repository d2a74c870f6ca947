"""What counts as growth, and which line of several is meant."""

from __future__ import annotations

from dataclasses import replace

from lowtide.diagnose import diagnose
from lowtide.diagnose.code import Code
from lowtide.diagnose.evidence import called_in_loop, is_users
from lowtide.diagnose.trends import goes_on
from lowtide.known import known_of
from lowtide.program import Source
from lowtide.record import Made, Recording, Sample, Step, Tape
from tests.diagnose.examples import FILE, MIB, at, census, detail, held, recording, site


def after_training(growth: int) -> Recording:
    """Twenty steps of a tf.function that need no more each time, then twenty eager calls that do."""
    run = recording("for x in data:\n    kept.append(model(x))\n", kind="function")
    calls = tuple(
        Step("call", "model", at(2), 30.0 + i, 30.5 + i, (50 + i * growth) * MIB, None, (700 + i * growth) * MIB)
        for i in range(20)
    )
    return replace(run, steps=(*run.steps, *calls))


def test_growth_after_the_training_is_growth_too() -> None:
    assert goes_on(after_training(10), "device_bytes") is True
    assert goes_on(after_training(0), "device_bytes") is False


def test_lines_that_take_turns_are_compared_each_with_itself() -> None:
    run = recording(steps=23)
    turns = tuple(
        step._replace(source=at(2 - i % 2), device_bytes=(90 - 40 * (i % 2)) * MIB) for i, step in enumerate(run.steps)
    )
    assert goes_on(replace(run, steps=turns), "device_bytes") is False
    leak = tuple(step._replace(device_bytes=(step.device_bytes or 0) + i * MIB) for i, step in enumerate(turns))
    assert goes_on(replace(run, steps=leak), "device_bytes") is True


def test_what_fills_and_is_emptied_again_does_not_grow() -> None:
    run = recording(steps=24)
    filled = tuple(step._replace(device_bytes=(50 + 10 * (i % 3)) * MIB) for i, step in enumerate(run.steps))
    assert goes_on(replace(run, steps=filled), "device_bytes") is False


def larger_batches(made: int = 20) -> Recording:
    """A step that is given more twice, traces for it, and leaves RSS as high as it went; an optimizer with slots."""
    code = "def step(x):\n    opt.apply(g)\nfor x in data:\n    step(x)\n"
    run = recording(code, kind="function", line=4)
    highs = [10 if i < 11 else 60 if i < 15 else 110 for i in range(len(run.steps))]
    steps = tuple(
        step._replace(device_peak_bytes=high * MIB, rss_bytes=(880 + high + i // 8) * MIB)
        for i, (step, high) in enumerate(zip(run.steps, highs, strict=True))
    )
    slots = held("variable", "opt._momentums (list of 10, global of train.py)", 10, 2)
    return replace(
        run, steps=steps, samples=run.samples[-1:], census=census(slots, before=10),
        made=(Made("variable", "ResourceVariable", at(2), made),),
    )  # fmt: skip


def test_a_larger_batch_lifts_rss_for_good_and_is_no_growth() -> None:
    assert diagnose(larger_batches()) == []


def test_variables_that_become_more_in_each_step_are_growth() -> None:
    run = larger_batches()
    more = census(held("variable", "", 20, 100, 2)._replace(example="float32 (9,)"))
    rising = tuple(step._replace(rss_bytes=(880 + 5 * i) * MIB) for i, step in enumerate(run.steps))
    found = diagnose(replace(run, census=more, steps=rising))
    assert "variables-made-again" in [f.id for f in found] or "variables-kept" in [f.id for f in found]


def test_a_leak_of_eager_code_after_training_is_found() -> None:
    rows = census(held("tensor", "kept (list of 20, global of train.py)", 20, 200))
    found = diagnose(replace(after_training(10), census=rows))
    assert (found[0].id, found[0].source) == ("tensors-kept", at(2))


def test_one_tensor_that_a_loop_makes_of_itself_is_named() -> None:
    code = "out = None\nfor x in data:\n    out = tf.concat([out, f(x)], 0)\n"
    early = held("tensor", "out (global of train.py)", 1, 10)._replace(time=3.0, step=2, example="float32 (10, 9)")
    late = held("tensor", "out (global of train.py)", 1, 300)._replace(example="float32 (300, 9)")
    found = diagnose(recording(code, device=15, census=(early, late)))
    assert (found[0].id, found[0].source) == ("tensors-kept", at(3))
    assert "one tensor is added to in every step" in found[0].title


def test_what_nobody_keeps_in_the_middle_of_a_step_is_no_leak() -> None:
    looks = ((1, 3.0), (20, 9.0), (1, 20.0))
    rows = tuple(held("tensor", "", number, 15 * number)._replace(time=time, step=0) for number, time in looks)
    assert not diagnose(recording("f()\n", device=1, census=rows))


def test_what_a_tape_drops_before_it_goes_back_was_recorded_for_nothing() -> None:
    code = "with tf.GradientTape() as tape:\n    loss = f(x)\n    score = f(v)\ng = tape.gradient(loss, w)\n"
    unread = [(site(f"Tanh_{i}", 3), "activations", 60, 5 + i, 40, "") for i in range(3)]
    read = [(site("Tanh", 2), "activations", 60, 4, 60, ""), (site("TanhGrad", 4), "gradients", 10, 50, 70, "")]
    tape = Tape(at(1), False, True, 9, 0, 1, 0.1, 0, 9, 0, 2, 2)
    found = diagnose(recording(code, line=4, details=(detail([*read, *unread]),), tapes=(tape,)))
    assert (found[0].id, found[0].source, found[0].bytes) == ("tape-records-unused", at(3), 180 * MIB)


CODE = """\
def make():
    return Dataset.from_generator(g)
def epoch():
    ds = make()
    if FAST:
        return ds
    return slow(ds)
for _ in range(9):
    epoch()
class Keep(Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.seen["loss"].append(float(logs["loss"]))
        self.seen["out"].append(self.model(x))
"""


def test_a_line_runs_often_when_its_callers_do() -> None:
    code = Code(recording(CODE))
    assert code.in_loop(at(2)) and code.in_loop(at(4))
    assert code.in_loop(at(12))
    assert called_in_loop(recording(CODE), at(2)) == at(4)


def test_a_decorated_function_belongs_to_the_function_that_makes_it() -> None:
    code = "def build():\n    @tf.function\n    def update(x):\n        return x\n    return update\n"
    run = recording(code + "for x in data:\n    build()(x)\n")
    assert called_in_loop(run, at(2)) == at(7)


def test_what_follows_a_return_that_was_taken_did_not_run() -> None:
    run = replace(recording(CODE), switches={FILE: {"FAST": True}}, sources={FILE: "FAST = True\n" + CODE})
    assert not Code(run).ran(at(8))
    assert Code(replace(run, switches={FILE: {"FAST": False}})).ran(at(8))


def test_of_several_lines_the_one_with_the_key_of_the_chain_is_meant() -> None:
    row = held("tensor", "Keep.seen['out'] (list of 20, object in local of fit)", 20, 200)
    found = diagnose(recording(CODE, device=10, census=census(row)))
    assert (found[0].id, found[0].source) == ("tensors-kept", at(13))


def test_a_library_module_is_no_name_of_the_users() -> None:
    assert is_users("kept (list of 3, global of train.py)")
    assert not is_users("_registry (dict of 3, in tensorflow.python.framework.ops)")
    assert not is_users("")


def test_a_finding_names_the_bug_of_its_version_and_of_no_other() -> None:
    assert known_of("layers-made-again", {"tensorflow": "2.21.0", "keras": "3.15.1"}) is not None
    assert known_of("layers-made-again", {"tensorflow": "2.19.0", "keras": "3.15.1"}) is None
    assert known_of("tensors-kept", {"tensorflow": "2.21.0", "keras": "3.15.1"}) is None


def test_what_is_let_go_when_the_script_has_ended_is_no_end_of_growth() -> None:
    run = recording(steps=0)
    sizes = [0, 26, 54, 93, 150, 205, 242, 242, 0]
    lines = [at(2)] * 6 + [None] * 3
    samples = tuple(
        Sample(i * 0.1, "inside", None, size * MIB, size * MIB, 256 * MIB, (600 + size) * MIB, source=line)
        for i, (size, line) in enumerate(zip(sizes, lines, strict=True))
    )
    assert goes_on(replace(run, samples=samples), "device_bytes") is not False


WRAPPED = """\
def traced(fn):
    def wrapper(x):
        out = fn(x)
        log.debug("%s", out)
        return out
    return wrapper
@traced
def expand(x):
    return x @ w
for step in range(9):
    expand(x)
"""


def test_a_wrapper_runs_as_often_as_what_it_decorates() -> None:
    assert Code(recording(WRAPPED)).in_loop(at(4))
    assert not Code(recording(WRAPPED.replace("for step in range(9):", "if True:"))).in_loop(at(4))
    assigned = WRAPPED.replace("@traced\n", "").replace("for step", "expand = traced(expand)\nfor step")
    assert Code(recording(assigned)).in_loop(at(4))


def spans(code: str) -> Source | None:
    tape = Tape(at(2), False, True, 9, 0, 1, 0.1, 13, 9, 0, 2, 2)
    rows = census(held("tensor", "", 20, 100, 4))
    return next(f for f in diagnose(recording(code, device=5, census=rows, tapes=(tape,))) if "spans" in f.id).source


def test_of_what_a_tape_records_the_part_that_is_not_differentiated_is_named() -> None:
    beside = """\
for x in data:
    with tf.GradientTape() as tape:
        loss = mse(x)
        val_loss = validate()
    grads = tape.gradient(loss, model.trainable_variables)
"""
    assert spans(beside) == at(4)
    wanted = beside.replace("loss = mse(x)", "h = body(x)\n        loss = mse(h)").replace("validate()", "1.0")
    assert spans(wanted) == at(2), "all of it is for the loss"
    inside = beside.replace("    grads", "        grads")
    assert spans(inside) == at(2), "the tape is around the steps themselves"


def test_the_lines_of_one_function_may_have_the_peak_together() -> None:
    code = "def elu(x):\n    p = tf.maximum(x, 0.0)\n    return p + tf.exp(x)\nact = elu if BIG else relu\n"
    code += "for m in mats:\n    x = act(x @ m)\n"
    rows = [
        (site(kind, line), "activations", size, 5, 90, "(9, 9)")
        for kind, line, size in (("Maximum", 2, 70), ("Exp", 3, 70), ("MatMul", 6, 40))
    ]
    found = diagnose(recording(code, line=9, details=(detail(rows),)))
    assert [(f.id, f.source, f.bytes) for f in found] == [("peak-by-line", at(6), 140 * MIB)]


def test_what_is_given_back_what_it_returned_is_not_called_on_everything() -> None:
    code = "def evolve(s, w):\n    return f(s, w)\nw = load()\ns = start()\nfor _ in range(4):\n    s = evolve(s, w)\n"
    one = detail([(site("Tanh", 2), "temporaries", 300, 5, 90, "(2048, 256)")], step=0)
    called = recording(code, kind="call", line=2, steps=4, details=(one,))
    assert "called-on-everything" not in [f.id for f in diagnose(called)]
    given = recording(code.replace("s = evolve", "y = evolve"), kind="call", line=2, steps=4, details=(one,))
    assert "called-on-everything" in [f.id for f in diagnose(given)]
