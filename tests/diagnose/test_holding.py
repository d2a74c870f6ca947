"""Which line keeps things: by the names of their holder, by who hands them over, by who makes them again and again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowtide.diagnose import ADVICE, PROBLEM, diagnose
from lowtide.diagnose.code import Code
from lowtide.record import Data, Held, HostSplit, Made, Recording, Stage
from tests.diagnose.examples import FILE, MIB, at, census, detail, held, recording, site, tape, traces


def test_what_a_method_of_its_holder_was_told_is_that_lines() -> None:
    code = (
        "log = logging.getLogger()\nfor step in range(20):\n    y = f(x)\n    log.info('step %d', 3)\n"
        "    log.debug('y %s', y)\n"
    )
    row = held("tensor", "log.handlers.buffer.args (list of 20, global of train.py)", 20, 200)._replace(held_at=at(1))
    found = diagnose(recording(code, device=10, census=census(row)))
    assert (found[0].id, found[0].source) == ("tensors-kept", at(5))


CYCLES = """\
class Context:
    def __init__(self, out):
        self.out, self.me = out, self
model = Sequential()
for step in range(20):
    context = Context(model(x))
"""


def test_cycles_that_nobody_collects_are_named_by_the_line_that_makes_them() -> None:
    row = held("tensor", "Context.out (a reference cycle)", 20, 200, made=4)
    found = diagnose(recording(CYCLES, device=10, census=census(row)))
    assert (found[0].id, found[0].source) == ("tensors-kept", at(6))
    assert "gc.collect()" in found[0].fix


def test_a_constructor_runs_as_often_as_its_class_is_called() -> None:
    assert Code(recording(CYCLES)).in_loop(at(3))
    assert not Code(recording(CYCLES.replace("for step in range(20):", "if True:"))).in_loop(at(3))


def test_a_layer_that_is_defined_once_is_not_the_line_that_keeps_its_outputs() -> None:
    run = recording(CYCLES, device=10, kind="call", line=6, census=census(held("tensor", "", 20, 200, made=4)))
    assert diagnose(run)[0].source == at(6)


PILE = "folds = []\nfor fold in range(5):\n    folds.append(Dataset.from_tensor_slices(x[fold]))\nfit(folds)\n"


def test_a_pile_that_was_there_before_anybody_looked_is_advice() -> None:
    row = held("tensor", "folds._tensors (list of 5, global of train.py)", 5, 200)
    found = diagnose(recording(PILE, kind="fit", line=4, census=census(row, before=5)))
    assert [(f.id, f.severity, f.source) for f in found] == [("tensors-kept", ADVICE, at(3))]
    assert found[0].saving_bytes == found[0].bytes - found[0].bytes // 5


def test_weights_in_a_list_that_no_loop_fills_are_no_pile() -> None:
    row = held("array", "weights (list of 5, global of train.py)", 5, 200)
    assert diagnose(recording("weights = model.get_weights()\nfit()\n", kind="fit", census=census(row, before=5))) == []


def joined(code: str, **sizes: float) -> list[tuple[str, int | None]]:
    rows = tuple(held("array", f"{name} (global of train.py)", 1, size) for name, size in sizes.items())
    found = diagnose(recording(code + "model.fit(wide)\n", kind="fit", line=2, census=rows))
    return [(f.id, f.source.line if f.source else None) for f in found if f.severity == PROBLEM]


def test_all_windows_of_a_series_are_the_series_many_times() -> None:
    windows = "wide = np.stack([series[i : i + 128] for i in range(len(series) - 128)])\n"
    assert joined(windows, wide=90) == [("array-many-times", 1)]
    assert joined("wide = np.tile(x, (8, 1))\n", wide=90, x=10) == [("array-many-times", 1)]


def test_windows_that_only_a_dataset_still_has_are_named_too() -> None:
    code = (
        "def make(series):\n    wide = np.array([series[i : i + 9] for i in range(900)])\n"
        "    return Dataset.from_tensor_slices(wide)\nmodel.fit(make(series))\n"
    )
    given = Data(0.5, None, "from_tensor_slices", at(3), 90 << 20, "float32", "(900, 9, 12)")
    found = diagnose(recording(code, kind="fit", line=4, data=(given,)))
    assert ("array-many-times", at(2)) in [(f.id, f.source) for f in found]


def test_files_put_together_and_parts_of_an_array_are_not() -> None:
    assert joined("wide = np.concatenate([load(name) for name in names])\n", wide=90) == []
    assert joined("wide = np.concatenate([x[:100], x[200:]])\n", wide=90, x=100) == []


def test_the_holder_itself_is_named_where_no_line_puts_things_into_it() -> None:
    code = (
        "TWICE = False\ntrain, stats = itertools.tee(batches())\nif TWICE:\n    stats = batches()\n"
        "for x in train:\n    step(x)\n"
    )
    row = held("tensor", "stats (global of train.py)", 20, 200)._replace(held_at=at(4))  # the last in the file
    run = recording(code, device=10, line=6, census=census(row), switches={FILE: {"TWICE": False}})
    assert diagnose(run)[0].source == at(2)


def test_an_attribute_is_not_the_local_of_the_same_name() -> None:
    code = (
        "class Node:\n    def __init__(self, state):\n        self.state = state\n"
        "for step in range(20):\n    state = f(node.state)\n    node = Node(state)\n"
    )
    row = held("tensor", "node.parent.state (global of train.py)", 20, 200)._replace(held_at=at(3))
    assert diagnose(recording(code, device=10, line=6, census=census(row)))[0].source == at(3)


def test_what_a_library_keeps_of_things_made_in_a_loop_is_the_loops() -> None:
    code = "features = Dense(9)(inputs)\nfor fold in range(20):\n    head = Dense(1)(features)\n"
    row = held("tensor", "features._history._nodes (list of 20, global of train.py)", 20, 200, made=3)
    row = row._replace(held_at=at(1))
    assert diagnose(recording(code, device=10, line=3, census=census(row)))[0].source == at(3)


def test_views_that_never_grow_are_named_where_they_are_cut() -> None:
    code = "def crop(image):\n    return image[:9]\ncrops = [crop(load(i)) for i in range(20)]\nfit(crops)\n"
    row = held("array", "crops (list of 20, global of train.py)", 20, 300, shown=3)._replace(held_at=at(3))
    found = diagnose(recording(code, kind="fit", line=4, census=census(row, before=20)))
    assert (found[0].id, found[0].source) == ("view-pins-buffer", at(2))


def test_a_retrace_for_each_new_object_is_the_line_that_makes_it() -> None:
    code = "for step in range(20):\n    loss = partial(focal, gamma=2)\n    train(x, loss)\n"
    again = traces(20, lambda i: "argument loss: Python object became Python object")
    assert diagnose(recording(code, host=5, traces=again))[0].source == at(2)


def test_a_retrace_by_shape_is_the_decorators_that_says_what_shapes_may_be() -> None:
    code = "@tf.function(reduce_retracing=False)\ndef train(x):\n    pass\nfor n in range(20):\n    train(x[:n])\n"
    again = traces(20, lambda i: f"argument x: float32 tensor ({i},) became float32 tensor ({i + 1},)", line=5)
    assert diagnose(recording(code, host=5, traces=again))[0].source == at(1)
    plain = code.replace("(reduce_retracing=False)", "")
    assert diagnose(recording(plain, host=5, traces=again))[0].source == at(5)


@pytest.mark.parametrize("made", ["tf.function(train)", "tf.function(self.train, autograph=False)"])
def test_a_retrace_by_shape_is_the_call_that_makes_the_function(made: str) -> None:
    code = f"def train(x):\n    pass\nstep = {made}\nfor n in range(20):\n    step(x[:n])\n"
    again = traces(20, lambda i: f"argument x: float32 tensor ({i},) became float32 tensor ({i + 1},)", line=5)
    assert diagnose(recording(code, host=5, traces=again))[0].source == at(3)
    twice = code + "other = tf.function(train)\n"
    assert diagnose(recording(twice, host=5, traces=again))[0].source == at(5)


def test_it_may_be_made_in_a_function_that_a_loop_calls() -> None:
    code = (
        "def craft(x):\n    loss = lambda y: focal(y)\n    return train(x, loss)\n"
        "for step in range(20):\n    craft(x)\n"
    )
    again = traces(20, lambda i: "argument loss: Python object became Python object")
    assert diagnose(recording(code, host=5, traces=again))[0].source == at(2)


def test_views_that_a_method_is_handed_are_named_where_they_leave_the_function_that_cuts_them() -> None:
    code = (
        "def crop(image):\n    part = image[:9]\n    return part\n"
        "def remember(row):\n    memory.append(row)\n"
        "for i in range(20):\n    remember(crop(load(i)))\n"
    )
    row = held("array", "memory (list of 20, global of train.py)", 20, 300, shown=3)._replace(held_at=at(5))
    found = diagnose(recording(code, host=15, line=7, census=census(row)))
    assert (found[0].id, found[0].source) == ("view-pins-buffer", at(3))


GAN = (
    "for step in range(20):\n    with tf.GradientTape(persistent=True) as tape:\n        fake = g(x)\n"
    "        real = d(y)\n        loss = d(fake)\n    train(tape, loss)\n    trainer.tape = tape\n"
)


def called_under_a_tape(**facts: int) -> Recording:
    run = recording(GAN, device=5, kind="call", census=census(held("tensor", "", 20, 100, 3)))
    steps = tuple(step._replace(source=at(3 + i % 3)) for i, step in enumerate(run.steps))
    return replace(run, steps=steps, tapes=(tape(**facts)._replace(source=at(2)),))


def test_models_called_on_many_lines_under_one_tape_are_one_step() -> None:
    ids = {f.id for f in diagnose(called_under_a_tape(most_steps=5))}
    assert "tape-spans-steps" not in ids
    ids = {f.id for f in diagnose(called_under_a_tape(most_steps=9))}
    assert "tape-spans-steps" in ids


def test_a_persistent_tape_that_is_kept_while_the_next_records_is_named_where_it_is_kept() -> None:
    found = diagnose(called_under_a_tape(most_steps=5, alive=1, most_alive=2))
    assert (found[0].id, found[0].source) == ("tapes-kept", at(7))


def test_a_persistent_tape_that_only_its_own_name_holds_need_not_be_so_for_one_gradient() -> None:
    def left(gradients: int) -> Recording:
        run = called_under_a_tape(most_steps=5, alive=1, most_alive=1, gradients=gradients)
        sources = {file: text.replace("trainer.tape = tape", "pass") for file, text in run.sources.items()}
        return replace(run, sources=sources)

    assert (diagnose(left(20))[0].id, diagnose(left(20))[0].source) == ("tapes-kept", at(2))
    assert "tapes-kept" not in {f.id for f in diagnose(left(40))}, "asked twice each"


def test_an_optimizer_that_comes_with_a_new_model_is_not_made_again() -> None:
    slots = site("adam/w_momentum", 2, "Variable")
    fresh = detail([(slots, "optimizer state", 40, 10, None, "(9, 9)")])
    made = (Made("optimizer", "Adam", at(2), 20), Made("model", "Sequential", at(2), 20))
    code = "for trial in range(20):\n    build().fit(x)\n"
    ids = [{f.id for f in diagnose(recording(code, details=(fresh,), made=made[:n]))} for n in (1, 2)]
    assert "optimizer-made-again" in ids[0]
    assert "optimizer-made-again" not in ids[1]


def test_what_a_session_makes_of_a_growing_graph_is_the_graphs() -> None:
    code = "for fold in range(20):\n    loss = build(x)\n    session.run(loss)\n"
    added = traces(20, lambda i: "the graph grew by 9 ops", size=0.1)
    grown = tuple(t._replace(function="Session.run", called=at(2), time=t.time / 10) for t in added)
    found = diagnose(recording(code, host=20, kind="run", line=3, traces=grown))
    assert [(f.id, f.source) for f in found if f.severity == PROBLEM] == [("graph-grows", at(2))]


def test_a_dict_with_new_keys_is_a_new_value_not_a_new_shape() -> None:
    code = "for step in range(20):\n    batch = {name(step): x}\n    train(batch)\n"
    change = "argument batch: Dict[['a{}', float32]] became Dict[['a{}', float32]]"
    again = traces(20, lambda i: change.format(i, i + 1))
    found = diagnose(recording(code, host=5, traces=again))[0]
    assert (found.id, found.source) == ("retrace-by-value", at(2))
    assert "same keys" in found.fix


REPLAY = "memory = deque(maxlen=20)\nfor step in range(20):\n    memory.append(f(x))\n"


def test_what_is_kept_in_a_container_that_has_an_end_is_advice() -> None:
    row = held("array", "memory (deque of 20, full at 20, global of train.py)", 20, 200)
    found = diagnose(recording(REPLAY, host=10, census=census(row)))
    assert [(f.id, f.severity, f.source) for f in found] == [("arrays-kept", ADVICE, at(3))]
    for_good = row._replace(holder="memory (deque of 20, global of train.py)")
    assert diagnose(recording(REPLAY, host=10, census=census(for_good)))[0].severity == PROBLEM
    endless = REPLAY.replace("maxlen=20", "")
    first = diagnose(recording(endless, host=10, census=census(for_good)))[0]
    assert (first.severity, first.source) == (PROBLEM, at(1)), "where it is said to have no end"


QUEUE = "batches = queue.Queue()\nThread(target=load).start()\nfor step in range(20):\n    train(batches.get())\n"


def test_a_queue_that_fills_faster_than_it_empties_is_named_where_it_is_made() -> None:
    row = held("array", "batches.queue (deque of 60, global of train.py)", 60, 300)
    fewer = row._replace(time=20.5, objects=40, bytes=row.bytes * 2 // 3, viewed_bytes=row.bytes * 2 // 3)
    found = diagnose(recording(QUEUE, kind="fit", line=4, census=(row, fewer)))
    assert (found[0].id, found[0].source) == ("queued-batches", at(1))
    assert found[0].saving_bytes == row.bytes - 4 * row.bytes // 60


def test_a_queue_that_is_full_from_the_first_look_on_is_named_where_it_is_made_if_anybody_takes_from_it() -> None:
    filled = QUEUE.replace("Thread(target=load).start()", "for row in rows: batches.put(row)")
    row = held("array", "batches.queue (deque of 60, global of train.py)", 60, 300)
    fills = filled.replace("batches.get()", "x")
    for code, line, id_ in ((filled, 1, "queued-batches"), (fills, 2, "arrays-kept")):
        found = diagnose(recording(code, kind="fit", line=4, census=(row,)))
        assert (found[0].id, found[0].source) == (id_, at(line))


def test_a_few_names_of_one_form_are_no_leak_where_nobody_saw_them_come() -> None:
    row = held("tensor", "q (global of train.py)", 3, 60)
    for holder in ("q (global of train.py)", "q (global of 2_train.py)"):
        few = row._replace(holder=holder)
        assert diagnose(recording("q, k, v = make()\nuse(q, k, v)\n", steps=0, census=(few,))) == []


def test_a_dataset_that_a_function_returns_is_rebuilt_by_who_calls_it() -> None:
    inside = "def fold(i):\n    ds = Dataset.from_generator(rows)\n    {}\nfor i in range(20):\n    fold(i)\n"
    made = (Made("dataset", "FlatMapDataset", at(2), 20),)
    returned = recording(inside.format("return ds"), host=10, made=made)
    used_up = recording(inside.format("train(ds)"), host=10, made=made)
    assert [diagnose(run)[0].source for run in (returned, used_up)] == [at(5), at(2)]


def test_what_says_itself_where_it_was_made_is_named_there() -> None:
    code = "def defer(f):\n    pending.append(f)\nfor step in range(20):\n    defer(lambda h=h: h)\n"
    row = held("tensor", "pending (list of 20, each in a function, global of train.py)", 20, 200)
    found = diagnose(recording(code, device=10, census=census(row._replace(held_at=at(4)))))
    assert (found[0].id, found[0].source) == ("tensors-kept", at(4))


def test_a_larger_model_that_came_instead_of_another_is_no_leak() -> None:
    code = "for width in range(20):\n    model = build(width)\n    model.fit(x)\n"
    small, large = (
        held("variable", "", 6, size, 3)._replace(example=f"float32 ({size}, {size})", time=time)
        for size, time in ((60, 3.0), (90, 20.0))
    )
    made = (Made("model", "Sequential", at(2), 20),)

    def found(*rows: Held) -> set[str]:
        return {f.id for f in diagnose(recording(code, device=5, kind="fit", line=3, census=rows, made=made))}

    assert found(small, large) == {"device-growth"}
    assert found(small, small._replace(time=20.0), large) == {"models-never-freed"}


@pytest.mark.parametrize("asked", ["prefetch", "shuffle"])
def test_a_buffer_that_each_source_of_an_interleave_has_is_named_where_it_is_asked_for(asked: str) -> None:
    code = f"def read(f):\n    return rows(f).{asked}(40)\nds = files.interleave(read, cycle_length=16)\n"
    open_sources = Stage(2.0, 1, 0, "Interleave", at(3), 300 * MIB, 640)
    found = diagnose(recording(code, stages=(open_sources,)))
    assert [(f.id, f.source) for f in found] == [(f"{asked}-buffer", at(2))]


def test_many_sources_with_a_small_shuffle_each_are_too_many_sources() -> None:
    code = "SIZE = 40\ndef read(f):\n    return rows(f).shuffle(SIZE)\nds = files.interleave(read, cycle_length=100)\n"
    run = recording(code, stages=(Stage(2.0, 1, 0, "Interleave", at(4), 300 * MIB, 4000),))
    assert [(f.id, f.source) for f in diagnose(replace(run, switches={FILE: {"SIZE": 40}}))] == [
        ("interleave-buffers", at(4))
    ]


def test_tapes_of_many_objects_are_kept_though_more_were_made() -> None:
    code = "class T:\n    def step(self):\n        self.tape = tf.GradientTape(persistent=True)\n"
    kept = tape(made=60, most_alive=13)._replace(source=at(3), persistent=True)
    found = diagnose(recording(code, device=10, tapes=(kept,)))
    assert (found[0].id, found[0].source) == ("tapes-kept", at(3))


ACTOR_AND_CRITIC = (
    "for step in range(20):\n    with tf.GradientTape(persistent=True) as tape:\n        value = critic(actor(x))\n"
    "        first = tape.gradient(value, actor)\n        second = tape.gradient(value, critic)\n"
)


def test_two_gradients_of_one_turn_are_one_step_and_both_have_to_leave_the_tape() -> None:
    run = recording(ACTOR_AND_CRITIC, device=5, census=census(held("tensor", "", 20, 100, 4)))
    steps = tuple(step._replace(source=at(4 + i % 2)) for i, step in enumerate(run.steps))
    backward = detail([(site("MatMul", 5), "temporaries", 60, 30, 80, "(9, 9)")], step=1)
    inside = tape(most_steps=3, gradients_inside=20)._replace(source=at(2))
    found = diagnose(replace(run, steps=steps, details=(backward,), tapes=(inside,)))
    assert "tape-spans-steps" not in {f.id for f in found}
    assert next(f for f in found if f.id == "gradient-inside-tape").source == at(4)


TRIMMED = (
    "seen = []\nfor step in range(20):\n    if len(seen) >= LIMIT:\n        seen.pop(0)\n    seen.append(f(x))\n"
)


@pytest.mark.parametrize("taking", ["seen.pop(0)", "del seen[0]", "seen = seen[1:]"])
def test_a_list_that_is_trimmed_when_it_is_full_has_an_end(taking: str) -> None:
    row = held("tensor", "seen (list of 20, global of train.py)", 20, 100, 5)
    trimmed = TRIMMED.replace("seen.pop(0)", taking)
    (found,) = diagnose(recording(trimmed, device=5, census=census(row)))
    assert (found.id, found.severity, found.source) == ("tensors-kept", ADVICE, at(5))
    another = TRIMMED.replace("seen.pop(0)", "other.pop(0)")
    assert diagnose(recording(another, device=5, census=census(row)))[0].severity == PROBLEM


def test_a_deque_of_no_length_has_no_end() -> None:
    row = held("array", "memory (deque of 20, global of train.py)", 20, 200)
    code = REPLAY.replace("maxlen=20", "maxlen=None")
    assert diagnose(recording(code, host=10, census=census(row)))[0].source == at(1)


def test_what_a_comprehension_is_still_collecting_is_named_there() -> None:
    code = (
        "def gradients(x):\n    return tape.gradient(loss(x), w)\ndef accumulate(parts):\n"
        "    return mean([gradients(x) for x in parts])\naccumulate(batches)\n"
    )
    row = held("tensor", "", 10, 200, 2)
    (found,) = diagnose(recording(code, line=2, census=(row._replace(time=9.0),)))
    assert (found.id, found.severity, found.source) == ("tensors-kept", ADVICE, at(4))
    assert not diagnose(recording(code.replace("gradients(x) for", "loss(x) for"), line=2, census=(row,)))


def test_pages_of_files_are_no_growth_of_the_process() -> None:
    code = "for step in range(20):\n    train(mapped[step])\n"
    run = recording(code, host=10)
    assert diagnose(run)[0].id == "host-growth"
    read = tuple(HostSplit(s.stop, i, 0, {"libraries": i * 10 * MIB}) for i, s in enumerate(run.steps))
    assert not diagnose(replace(run, splits=read))


def test_a_layer_that_the_script_calls_itself_is_named_where_it_does() -> None:
    code = "head = Dense(16000)\nfor step in range(20):\n    logits = head(h)[:, -1]\n"
    wide = detail([(site("MatMul", 1, layer="head"), "temporaries", 300, 10, 60, "(3200, 16000)")])
    called = recording(code, kind="call", line=3, details=(wide,))
    by_itself = replace(called, steps=tuple(step._replace(name="head") for step in called.steps))
    assert diagnose(by_itself)[0].source == at(3)
    assert diagnose(called)[0].source == at(1), "a model's call has many layers"


@pytest.mark.parametrize(("over", "made", "spans"), [
    ("losses", "total = total + 1", False),
    ("batches", "loss = f(loss)", True),
])  # fmt: skip
def test_gradients_of_what_a_loop_does_not_make_are_no_steps(over: str, made: str, spans: bool) -> None:
    code = (
        f"for step in range(20):\n    with tf.GradientTape(persistent=True) as tape:\n        for loss in {over}:\n"
        f"            {made}\n            g = tape.gradient(loss, w)\n"
    )
    run = recording(code, device=5, line=5, census=census(held("tensor", "", 20, 100, 4)))
    backward = detail([(site("MatMul", 5), "temporaries", 60, 30, 80, "(9, 9)")], step=1)
    inside = tape(most_steps=6, gradients_inside=120)._replace(source=at(2))
    ids = {f.id for f in diagnose(replace(run, details=(backward,), tapes=(inside,)))}
    assert ("tape-spans-steps" in ids) == spans
    assert "gradient-inside-tape" in ids


def test_the_fix_names_what_has_them_all_and_not_the_place_of_one() -> None:
    code = "table = {}\nfor step in range(20):\n    table[step] = {'out': model(x)}\n"
    row = held("tensor", "table['7']['out'] (dict of 20, global of train.py)", 20, 200)
    assert diagnose(recording(code, device=10, census=census(row)))[0].fix.endswith("take old ones out of `table`")
