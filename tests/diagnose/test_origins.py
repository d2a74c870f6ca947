"""From the line that holds or computes to the line that the user would change."""

from __future__ import annotations

from lowtide.diagnose import diagnose
from lowtide.diagnose.code import Code
from lowtide.diagnose.origins import blamed_caller, returned_by, widened_for
from lowtide.record import Data
from tests.diagnose.examples import FILE, at, census, detail, held, recording, site, tape

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


SHARED = (
    "ALL = True\ndef distances(a, b):\n    return tf.reduce_sum((a[:, None] - b) ** 2, -1)\n"
    "if ALL:\n    found = distances(x, y)\nelse:\n    found = distances(x[:9], y)\n"
)


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
    two = DISTILL.replace("target = teacher(x)", "target = teacher(x); other = teacher(-x)")
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
