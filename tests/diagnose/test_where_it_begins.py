"""The line where memory begins to be needed: before what goes on from it, inside the function that a line calls, and
never in code that did not run."""

from __future__ import annotations

from dataclasses import replace

from lowtide.diagnose import ADVICE, diagnose
from lowtide.diagnose.code import Code
from lowtide.diagnose.types import Finding
from lowtide.program import Source
from lowtide.record import Data, Made, Recording, Sample
from lowtide.record.types import UNSEEN
from tests.diagnose.examples import MIB, PEAK, at, census, detail, held, recording, site

SQUARE = "(900, 900)"


def told(run: Recording) -> list[tuple[str, Source | None]]:
    return [(finding.id, finding.source) for finding in diagnose(run)]


LOSS = "def loss(y, p):\n    e = y - p\n    return tf.reduce_mean(tf.maximum(t * e, (t - 1) * e))\n"


def broadcast(kind: str = "Sub", before: int = 5) -> list[Finding]:
    rows = [
        (site("gradient_tape/Tile", 3, "Tile", mode="graph"), "temporaries", 90, 2, 90, SQUARE),
        (site("sub", 2, kind, mode="graph"), "temporaries", 90, before, 60, SQUARE),
        (site("mul", 3, "Mul", mode="graph"), "temporaries", 90, 20, 90, SQUARE),
        (site("mul_1", 3, "Mul", mode="graph"), "temporaries", 90, 21, 90, SQUARE),
    ]
    return diagnose(recording(LOSS, kind="function", line=9, details=(detail(rows),)))


def test_what_broadcasting_makes_large_is_named_where_it_first_does() -> None:
    found = broadcast()
    assert (found[0].id, found[0].source, found[0].bytes) == ("peak-by-line", at(2), 360 * MIB)
    assert "two smaller tensors" in found[0].title


def test_what_a_product_makes_or_was_there_is_not_broadcast() -> None:
    assert broadcast("MatMul")[0].source == at(3)
    assert broadcast(before=0)[0].source == at(3)


def test_where_the_detailed_steps_have_no_line_the_samples_do() -> None:
    code = "for step in range(20):\n    merge(parts)\n    apply(x)\n"
    left = detail([(site(UNSEEN, None), "other", 600, 0, None, "")])
    run = recording(code, kind="stretch", details=(left,))
    high = Sample(10.2, "inside", 10, 600 * MIB, 600 * MIB, 700 * MIB, PEAK, source=at(2))
    late = Sample(10.4, "inside", 10, 60 * MIB, 600 * MIB, 700 * MIB, PEAK, source=at(3))
    run = replace(run, samples=(*run.samples, high, late))
    assert ("peak-by-line", at(2)) in told(run)
    trained = replace(run, steps=tuple(step._replace(kind="fit") for step in run.steps))
    assert ("peak-by-line", at(2)) not in told(trained), "what a step is made of was seen in full"


UNUSED = (
    "ALL = True\n"
    "def ahead(pool):\n    for n in range(9):\n        waiting.append(pool.submit(load, n))\n"
    "def every(pool):\n    pending = [pool.submit(load, n) for n in range(9)]\n    yield from pending\n"
    "for rows in (every if ALL else ahead)(pool):\n    train(rows)\n"
)


def test_a_function_that_nothing_names_which_runs_did_not_run() -> None:
    run = recording(UNUSED)
    script = replace(run.run, script="/home/me/train.py")
    switched = replace(run, run=script, switches={"/home/me/train.py": {"ALL": True}})
    code = Code(switched)
    assert not code.ran(at(4))
    assert code.ran(at(6))
    assert code.ran(at(9))
    seen = switched.samples[0]._replace(source=at(4))
    assert Code(replace(switched, samples=(seen,))).ran(at(4)), "somebody calls it in a way that cannot be seen"
    assert Code(replace(switched, switches={})).ran(at(4)), "nobody knows which"
    module = replace(switched, run=replace(script, script="/home/me/other.py"))
    assert Code(module).ran(at(4)), "who imports it may call it"


def test_float64_is_what_makes_it_not_what_fills_an_array_of_another_type() -> None:
    code = (
        "x = np.empty((300, 9), 'uint8')\nfor k, row in rows:\n    x[k], y[k] = row, k\n"
        "x = x / 255.0\nmodel.fit(x, y)\n"
    )
    given_x = Data(0.5, None, "fit", at(5), 200 * MIB, "float64", "(300, 9)")
    assert told(recording(code, kind="fit", line=5, data=(given_x,)))[0] == ("float64-data", at(4))


def test_what_a_call_is_given_at_once_is_named_where_the_function_makes_it() -> None:
    code = "def encode(w):\n    out = np.eye(64)[w]\n    return out\ny = np.array([1])\nnet.fit(encode(windows), y)\n"
    given_x = Data(0.5, None, "fit", at(5), 200 * MIB, "float64", "(300, 9)")
    assert told(recording(code, kind="fit", line=5, data=(given_x,)))[0] == ("float64-data", at(2))


def test_windows_are_named_in_the_function_that_copies_them() -> None:
    code = "def windows(s):\n    return np.array([s[i : i + 96] for i in range(9)])\nx = windows(signal)\nuse(x)\n"
    row = held("array", "x (global of train.py)", 1, 300)
    assert told(recording(code, census=(row,)))[0] == ("array-many-times", at(2))
    beside = code.replace("x = windows(signal)", "x, y = windows(signal), signal[9:]")
    assert told(recording(beside, census=(row,)))[0] == ("array-many-times", at(2))
    labels = held("array", "y (global of train.py)", 1, 300)
    assert "array-many-times" not in [id_ for id_, _ in told(recording(beside, census=(labels,)))]


def test_a_loop_of_a_function_is_named_where_it_is_handed_the_function_however_deep_the_op() -> None:
    code = (
        "def laplacian(u):\n    return tf.roll(u, 1, 0)\ndef step(u, dt):\n    return u + dt * laplacian(u)\n"
        "def simulate(u):\n    return tf.scan(step, dts, initializer=u)[-1]\nu = tf.ones((900, 900))\nsimulate(u)\n"
    )
    turns = [(site("scan/while/Roll", 2, "Roll", mode="graph"), "temporaries", 4, i + 1, 90, SQUARE) for i in range(40)]
    run = recording(code, kind="call", line=8, steps=2, details=(detail(turns, step=0),))
    assert told(run)[0] == ("loop-keeps-every-turn", at(6)), "and is no model on 900 rows"


def test_bytes_in_a_deque_that_has_an_end_are_not_told_to_stay_bytes() -> None:
    code = (
        "frames = deque(maxlen=900)\nstate = np.zeros((84, 84), 'uint8')\n"
        "for step in range(20):\n    frames.append(state)\n"
    )
    row = held("array", "frames (deque of 20, full at 900, global of train.py)", 20, 200)
    found = diagnose(recording(code, host=10, census=census(row._replace(example="uint8 (84, 84)"))))
    assert (found[0].severity, found[0].source) == (ADVICE, at(4))
    assert "uint8" not in found[0].fix


def test_rows_that_nobody_has_by_name_wait_in_the_window_that_the_script_asks_for() -> None:
    code = "groups = clips.group_by_window(key, reduce, window_size=5000)\nfor batch in groups:\n    use(batch)\n"
    rows = [(site(UNSEEN, None, " ", mode="graph"), "other", 300, 0, None, "") for _ in range(2)]
    run = recording(code, kind="next", line=2, details=(detail(rows),))
    assert told(run)[0] == ("grouped-in-memory", at(1))
    beside = replace(run, sources={at(1).file: code.replace("clips.", "clips.shuffle(9).")})
    assert "grouped-in-memory" not in [finding.id for finding in diagnose(beside)], "it may be the shuffle's"


def test_sessions_that_a_helper_opens_are_left_open_by_who_has_it_open_them() -> None:
    code = "def start(name):\n    s = Session()\n    return s\nfor name in names:\n    sessions[name] = start(name)\n"
    made = (Made("session", "Session", at(2), 20),)
    assert ("sessions-left-open", at(5)) in told(recording(code, device=9, made=made))


def test_what_a_comprehension_collects_for_a_while_is_no_growth() -> None:
    code = (
        "def draw(x):\n    draws = np.stack([model(x) for _ in range(60)])\n    return draws.mean(0)\n"
        "for x in data:\n    draw(x)\n"
    )
    run = recording(code, host=6, kind="call", line=2)
    run = replace(run, samples=tuple(sample._replace(source=at(2)) for sample in run.samples))
    found = told(run)
    assert ("host-peak", at(2)) in found
    assert "host-growth" not in [id_ for id_, _ in found]
    kept = replace(run, sources={at(1).file: code.replace("return draws.mean(0)", "history.append(draws)")})
    assert "host-growth" in [id_ for id_, _ in told(kept)]


def test_a_writer_whose_queue_is_short_has_no_summaries_waiting() -> None:
    code = "writer = tf.summary.create_file_writer(folder, max_queue=9999)\ntf.summary.image('x', y)\n"
    risen = recording(code, host=9)
    assert ("summaries-waiting", at(1)) in told(risen)
    short = replace(risen, sources={at(1).file: code.replace("9999", "2")})
    assert "summaries-waiting" not in [id_ for id_, _ in told(short)]


def test_a_line_of_a_layers_own_code_is_told_and_not_the_line_that_calls_the_layer() -> None:
    code = "class A(Layer):\n    def call(self, x):\n        s = x @ x\n        return s\nlayer = A()\nlayer(x)\n"
    rows = [(site("MatMul", 3, layer="a"), "temporaries", 400, 5, 90, SQUARE)]
    run = recording(code, kind="call", line=6, details=(detail(rows),))
    run = replace(run, steps=tuple(step._replace(name="a") for step in run.steps))
    assert ("peak-by-line", at(3)) in told(run)
    makes = code.replace("def call(self, x)", "def __init__(self, x)")
    made = replace(run, sources={at(1).file: makes})
    assert ("peak-by-line", at(6)) in told(made), "line 3 makes the layer that line 6 calls"


def test_fits_copy_of_what_the_script_holds_is_told_where_that_is_made() -> None:
    code = "big = tf.image.resize(x, (128, 128))\nmodel.fit(big)\n"
    rows = [(site("MakeIterator", 2), "inputs", 400, 5, 90, SQUARE)]
    row = held("tensor", "big (global of train.py)", 1, 300)
    found = told(recording(code, kind="fit", line=2, details=(detail(rows),), census=(row,)))
    assert found[0] == ("held-by-name", at(1))


def test_the_variables_of_a_model_are_not_more_of_them() -> None:
    code = (
        "class Block:\n    def __init__(self):\n        self.up = tf.Variable(zeros)\n"
        "blocks = [Block() for _ in range(14)]\n"
    )
    row = held("variable", "tower.blocks.up (list of 14, global of train.py)", 14, 60, 3)
    assert "variables-kept" not in [id_ for id_, _ in told(recording(code, steps=2, census=(row,)))]
    rising = recording(code, device=9, census=(row,))
    assert "variables-kept" in [id_ for id_, _ in told(rising)]


def test_slots_that_came_once_are_no_variables_made_again() -> None:
    code = "def tag(x):\n    return head(x)\nopt.build(weights)\nfor step in range(20):\n    tag(x)\n"
    row = held("variable", "opt.slots (list of 9, global of train.py)", 9, 3, 2)
    looks = [row._replace(time=time, objects=count) for time, count in ((1.0, 2), (9.0, 9), (20.0, 9))]
    run = recording(code, host=5, line=5, made=(Made("variable", "ResourceVariable", at(2), 9),))
    assert "variables-made-again" not in [id_ for id_, _ in told(replace(run, census=tuple(looks)))]
    more = (*looks[:2], row._replace(objects=16))
    assert "variables-made-again" in [id_ for id_, _ in told(replace(run, census=more))]


def test_a_queue_that_was_full_for_a_while_is_no_growth_of_fit() -> None:
    run = recording("model.fit(loader)\n", kind="fit", device=9)
    assert "device-growth" in [id_ for id_, _ in told(run)]
    emptied = [step._replace(device_bytes=50 * MIB) if n > 13 else step for n, step in enumerate(run.steps)]
    assert "device-growth" not in [id_ for id_, _ in told(replace(run, steps=tuple(emptied)))]
