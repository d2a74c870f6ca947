"""From the line that holds or computes to the line that the user would change."""

from __future__ import annotations

from dataclasses import replace

from lowtide.diagnose import diagnose
from lowtide.diagnose.code import Code
from lowtide.diagnose.origins import (
    blamed_caller,
    collected_by,
    copied_and_kept,
    made_empty,
    multiplied_for,
    returned_by,
    returned_with,
    sized_by,
    taken_from,
    widened_for,
)
from lowtide.diagnose.types import ADVICE
from lowtide.record import Data, Made, Sample
from tests.diagnose.examples import FILE, at, census, detail, held, recording, site, tape, traces

LOAD = (
    "def load(text):\n    inputs, targets = text[:, :-1], text[:, 1:]\n    targets = to_categorical(targets)\n"
    "    return inputs, targets\nx, y = load(text)\nmodel.fit(x, y)\n"
)


def test_a_name_comes_from_where_the_function_that_gave_it_made_it() -> None:
    code = Code(recording(LOAD))
    assert returned_by(code, at(5), "y") == at(3)
    assert returned_by(code, at(5), "x") == at(2)
    assert returned_by(code, at(6), "y") == at(6), "not from a function of the user's"


def test_float64_that_fit_is_given_is_named_where_it_was_made() -> None:
    given = Data(0.5, None, "fit", at(6), 200 << 20, "float64", "(300, 20, 4000)")
    row = held("array", "y (global of train.py)", 1, 200)._replace(example="float64 (300, 20, 4000)")
    found = diagnose(recording(LOAD, kind="fit", line=6, census=(row,), data=(given,)))
    assert (found[0].id, found[0].source) == ("float64-data", at(3))


REPLAY = (
    "memory = deque(maxlen=900)\ndef prepare(frame):\n    frame = frame[::2]\n    return (frame - 128) / 128\n"
    "for step in range(20):\n    state = prepare(env.render())\n    memory.append((state, 1))\n"
)


def test_kept_frames_of_float64_are_named_where_a_division_made_them_so() -> None:
    code = Code(recording(REPLAY))
    assert widened_for(code, at(7)) == at(4)
    narrow = REPLAY.replace("/ 128", "/ np.float32(128)")
    assert widened_for(Code(recording(narrow)), at(7)) is None
    row = held("array", "memory (deque of 20, at most 900, global of train.py)", 20, 200)
    found = {
        kind: diagnose(recording(REPLAY, line=7, census=census(row._replace(example=f"{kind} (80, 80)"))))
        for kind in ("float64", "float32")
    }
    first = found["float64"][0]
    assert (first.id, first.source, first.saving_bytes) == ("float64-data", at(4), 100 << 20)
    assert "float64-data" not in {f.id for f in found["float32"]}
    full = row._replace(holder="memory (deque of 20, full at 20, global of train.py)", example="float32 (80, 80)")
    (kept,) = diagnose(recording(REPLAY, host=10, line=7, census=census(full)))
    assert (kept.severity, kept.source) == (ADVICE, at(4)), "that much is meant to be kept: its type is what may change"


SHARED = (
    "ALL = True\ndef distances(a, b):\n    return tf.reduce_sum((a[:, None] - b) ** 2, -1)\n"
    "if ALL:\n    found = distances(x, y)\nelse:\n    found = distances(x[:9], y)\n"
)


def test_floats_may_be_made_as_a_method_puts_them() -> None:
    code = "class M:\n    def add(self, o):\n        self.d.append(o.astype('float32') / 9)\nm = M()\nm.add(o)\n"
    assert widened_for(Code(recording(code)), at(5), "float32") == at(3)


def test_an_array_that_is_filled_row_by_row_is_named_where_it_is_made() -> None:
    code = "def load():\n    table = np.zeros((9, 9))\n    for i in r:\n        table[i] = row(i)\n    rows[0] = 1\n"
    assert made_empty(Code(recording(code)), at(4)) == at(2)
    assert made_empty(Code(recording(code)), at(5)) is None, "not of this function"
    assert made_empty(Code(recording(code.replace("np.zeros", "load"))), at(4)) is None, "all of it is there at once"


def test_a_line_that_several_places_share_is_not_blamed_but_who_called() -> None:
    switched = recording(SHARED, switches={FILE: {"ALL": True}})
    assert blamed_caller(Code(switched), at(3)) == at(5)
    assert blamed_caller(Code(recording(SHARED)), at(3)) is None, "either may have"
    once = SHARED.partition("else:")[0]
    assert blamed_caller(Code(recording(once)), at(3)) is None, "nobody shares it"
    large = detail([(site("Sub", 3), "temporaries", 300, 5, 90, "(9, 9, 9)")])
    found = diagnose(recording(SHARED, line=5, kind="call", switches={FILE: {"ALL": True}}, details=(large,)))
    assert ("peak-by-line", at(5)) in [(f.id, f.source) for f in found]


DISTILL = (
    "for step in range(20):\n    with tf.GradientTape() as tape:\n        target = teacher(x)\n"
    "        loss = distance(target, student(x))\n    tape.gradient(loss, student.trainable_variables)\n"
)


def test_of_a_tape_that_records_too_much_the_statement_is_named_that_needs_no_gradient() -> None:
    both = detail([
        (site("Sigmoid", 3), "activations", 80, 10, 60, "(9, 9)"),
        (site("SigmoidGrad", 5), "temporaries", 10, 40, 45, "(9, 9)"),
    ])  # fmt: skip
    facts = tape(watched=9, used=1)._replace(source=at(2))
    found = diagnose(recording(DISTILL, line=5, details=(both,), tapes=(facts,)))
    assert ("tape-records-unused", at(3)) in [(f.id, f.source) for f in found]
    two = DISTILL.replace("target = teacher(x)", "target = teacher(x); target = mean(target, teacher(-x))")
    found = diagnose(recording(two, line=5, details=(both,), tapes=(facts,)))
    assert ("tape-records-unused", at(2)) in [(f.id, f.source) for f in found], "it takes more than one statement"


def test_what_has_only_the_line_of_fit_does_not_hide_a_line_of_the_users() -> None:
    code = "def penalty(w):\n    return reduce_sum(w @ w)\nmodel.fit(x)\n"
    both = detail([
        (site("gradient_tape/Tile", 3, mode="graph"), "gradients", 200, 10, 60, "(9, 9)"),
        (site("MatMul", 2, mode="graph"), "temporaries", 150, 11, 60, "(9, 9)"),
    ])  # fmt: skip
    found = diagnose(recording(code, kind="fit", line=3, details=(both,)))
    assert ("peak-by-line", at(2)) in [(f.id, f.source) for f in found]


def test_a_queue_that_was_full_and_is_empty_in_the_end_is_named_where_it_was_made() -> None:
    code = (
        "class Loader:\n    def __init__(self):\n        self.queue = queue.Queue()\n"
        "    def run(self):\n        self.queue.put(load())\nloader = Loader()\nfor batch in loader:\n    step(batch)\n"
    )
    full = held("array", "loader.queue.queue (deque of 118, global of train.py)", 118, 300)._replace(time=3.0)
    later = held("array", "batch (global of train.py)", 1, 2)
    found = diagnose(recording(code, line=8, census=(full, later)))
    assert (found[0].id, found[0].source) == ("queued-batches", at(3))


PADDED = (
    "longest = max(len(t) for t in texts)\nx = pad_sequences(texts, maxlen=longest)\nmodel.predict(x, batch_size=32)\n"
)


def test_a_size_that_was_taken_from_all_of_the_data_is_named_where_it_was() -> None:
    assert sized_by(Code(recording(PADDED)), at(2)) == at(1)
    assert sized_by(Code(recording(PADDED)), at(3)) is None
    assert sized_by(Code(recording(PADDED.replace("max(len(t) for t in texts)", "100"))), at(2)) is None


def test_predict_with_a_batch_of_all_rows_is_called_on_everything() -> None:
    code = "size = len(x)\nscores = model.predict(x, batch_size=size)\n"
    large = detail([(site("Conv2D", 9), "temporaries", 300, 5, 90, "(800, 64, 64, 16)")], step=0)
    found = {
        text: diagnose(recording(text, kind="predict", line=2, steps=1, details=(large,)))
        for text in (code, code.replace("len(x)", "800"))
    }
    first = found[code][0]
    assert (first.id, first.source) == ("called-on-everything", at(1))
    assert "called-on-everything" not in {f.id for f in found[code.replace("len(x)", "800")]}


ROWS = (
    "def load():\n    while True:\n        yield read()\n"
    "rows = []\nfor row in load():\n    rows.append(row.tolist())\n"
)


def test_a_generators_line_stands_for_the_one_that_keeps_what_it_gives() -> None:
    assert taken_from(Code(recording(ROWS)), at(3)) == at(6)
    assert taken_from(Code(recording(ROWS)), at(6)) is None, "no generator's"
    two = ROWS + "    others.append(row)\n"
    assert taken_from(Code(recording(two)), at(3)) is None, "either may"


TRIALS = (
    "def objective(rate):\n    model = build()\n    if KEEP:\n        return {'loss': 1.0, 'model': model}\n"
    "    return {'loss': 1.0}\ntrials = []\nfor k in range(20):\n    trials.append(objective(k))\n"
)


def test_what_an_object_is_given_by_its_name_is_named_where_a_function_returns_that() -> None:
    code = Code(recording(TRIALS.replace("{'loss': 1.0, 'model': model}", "Trial(1.0, model)")))
    assert returned_with(code, at(8), "model") == at(4)
    assert returned_with(code, at(8), "rate") is None
    fits = TRIALS.replace("{'loss': 1.0, 'model': model}", "model.fit(x, y)")
    assert returned_with(Code(recording(fits)), at(8), "_model") == at(4), "a History has its model"


LOGS = (
    "class Model:\n    def train_step(self, data):\n        return {'loss': loss, 'confusion': matrix}\n"
    "class Monitor:\n    def on_epoch_end(self, epoch, logs):\n        logs['embedding'] = table\n"
    "history = model.fit(x, y, callbacks=[Monitor()])\n"
)


def test_what_keras_keeps_in_its_history_is_named_where_it_enters_the_logs() -> None:
    for key, line in (("confusion", 3), ("val_confusion", 3), ("embedding", 6)):
        row = held("array", f"history.history['{key}'] (list of 20, global of train.py)", 20, 200)
        found = diagnose(recording(LOGS, host=10, line=7, kind="fit", census=census(row)))
        assert (found[0].id, found[0].source) == ("arrays-kept", at(line))


NESTED = (
    "def play():\n    frames = []\n    for _ in range(60):\n        frames.append(step())\n"
    "    return {'frames': frames}\n"
    "for k in range(20):\n    one = play()\n    episodes[k] = one\n"
)


def test_of_containers_in_one_another_the_one_that_grows_is_named() -> None:
    for objects, line in ((1200, 8), (60, 4)):
        row = held("tensor", "episodes['3']['frames'] (list of 60, global of train.py)", objects, 200)
        found = diagnose(recording(NESTED, device=10, line=8, census=census(row)))
        assert (found[0].id, found[0].source) == ("tensors-kept", at(line))


def test_what_a_comprehension_calls_runs_often() -> None:
    text = "def cycle(k):\n    model.compile(Adam(k))\nlosses = [cycle(k) for k in range(7)]\nonce = cycle(9)\n"
    code = Code(recording(text))
    assert code.in_loop(at(2))
    assert code.used_often("cycle") == [at(3)]
    assert not code.in_loop(at(3)), "the statement itself runs once"


def test_what_is_kept_under_a_key_is_named_where_a_function_returns_it() -> None:
    code = Code(recording(TRIALS))
    assert returned_with(code, at(8), "model") == at(4)
    assert returned_with(code, at(8), "score") is None
    row = held("tensor", "trials['model'] (list of 20, global of train.py)", 20, 200)
    found = diagnose(recording(TRIALS, device=10, line=8, census=census(row)))
    assert (found[0].id, found[0].source) == ("tensors-kept", at(4))


def test_an_array_that_a_function_multiplies_is_named_where_it_is_called() -> None:
    windows = "def cut(v):\n    return np.stack([v[i : i + 200] for i in range(len(v))])\nx = cut(series)\n"
    found = multiplied_for(Code(recording(windows)), at(3), "x")
    assert (found.names, found.surely) == (frozenset({"series"}), True)
    plain = windows.replace("np.stack([v[i : i + 200] for i in range(len(v))])", "v[::2]")
    assert not multiplied_for(Code(recording(plain)), at(3), "x").surely


def test_copies_of_one_line_count_together() -> None:
    code = "for k in range(5):\n    parts.append(tf.data.Dataset.from_tensor_slices(np.roll(x, k)))\n"
    given = Data(0.5, None, "from_tensor_slices", at(2), 40 << 20, "float32", "(9, 9)")
    array = held("array", "x (global of train.py)", 1, 40)._replace(example="float32 (9, 9)")
    made = held("dataset", "parts (list of 5, global of train.py)", 5, 0)._replace(made=at(2))
    alone = diagnose(recording(code, line=2, data=(given,), census=(array,)))
    together = diagnose(recording(code, line=2, data=(given,), census=(array, made)))
    assert "dataset-copied" not in {f.id for f in alone}
    assert ("dataset-copied", at(2), 200 << 20) in [(f.id, f.source, f.bytes) for f in together]


EPOCHS = (
    "def g(x): ...\ndef epoch():\n    step = tf.function(g)\n    step(x)\n    return step(x)\n"
    "for k in range(20):\n    epoch()\n"
)


def test_a_function_made_in_each_call_is_named_there_unless_it_is_handed_out() -> None:
    many = traces(20, lambda i: "first call", owner=lambda i: i)
    made = (Made("function", "Function", at(3), 20),)
    for code, line in ((EPOCHS, 3), (EPOCHS.replace("return step(x)", "return step"), 7)):
        found = diagnose(recording(code, host=5, line=7, traces=many, made=made))
        assert (found[0].id, found[0].source) == ("function-made-again", at(line))


FILLS = (
    "def train(steps):\n    kept = []\n    for step in range(steps):\n        kept.append(model(x))\n    return kept\n"
    "report = train(30)\n"
)


def test_what_a_function_fills_and_returns_is_named_where_it_is_filled() -> None:
    row = held("tensor", "report (list of 30, global of train.py)", 30, 200)
    run = recording(FILLS, device=10, line=4, census=census(row))
    assert (diagnose(run)[0].id, diagnose(run)[0].source) == ("tensors-kept", at(4))
    as_comprehension = "def train(steps):\n    return [model(x) for _ in range(steps)]\nreport = train(30)\n"
    run = recording(as_comprehension, device=10, line=2, census=census(row))
    assert (diagnose(run)[0].id, diagnose(run)[0].source) == ("tensors-kept", at(2))


def test_what_a_function_makes_for_each_part_is_kept_by_the_comprehension() -> None:
    text = "def parse(line):\n    return [float(v) for v in line]\nrows = [parse(line) for line in f]\n"
    assert collected_by(Code(recording(text)), at(2)) == at(3)
    summed = text.replace("rows = [parse(line) for line in f]", "total = sum(parse(line)[0] for line in f)")
    assert collected_by(Code(recording(summed)), at(2)) is None, "nobody keeps them"


def test_the_host_grows_on_a_line_of_the_loop_and_not_on_one_after_it() -> None:
    text = "for x in data:\n    draws = one_pass(x)\nspread = draws.var(0)\n"
    run = recording(text, host=20, kind="call", line=2)
    times = [step.stop + 0.05 for step in run.steps]
    inside = [Sample(time, "inside", i, rss_bytes=s.rss_bytes, source=at(2))
              for i, (time, s) in enumerate(zip(times, run.steps, strict=True))]  # fmt: skip
    more = (run.steps[-1].rss_bytes or 0) + (900 << 20)
    after = [Sample(times[-1] + 1 + i, "inside", 22, rss_bytes=more, source=at(3)) for i in range(2)]
    found = [f for f in diagnose(replace(run, samples=(*inside, *after))) if f.id == "host-growth"]
    assert [f.source for f in found] == [at(2)]


def test_a_copy_is_told_by_what_stays_beside_it() -> None:
    for text, names in (
        ("images = load()\nx = np.array(images)\n", ["images"]),
        ("images = load()\nx = np.array(images)\ndel images\n", []),
        ("x = load()\nx = x.astype('float32')\n", []),
        ("a = load()\ntrain, rest = a[order[:9]], a[order[9:]]\n", ["a"]),
        ("a = load()\nfirst = a[:9]\n", []),
        ("x = np.array(read_all())\ny = 1\n", []),
    ):
        assert copied_and_kept(Code(recording(text)), at(2)) == names, text
