"""Correct scripts that grow for a reason: nothing is said of them, or what is true."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowtide.diagnose import RULES, Finding, diagnose
from lowtide.diagnose.aftermath import MADE_AGAIN, leak_remedies
from lowtide.diagnose.evidence import filled
from lowtide.record import Held, Made, Recording, Sample, Step, Trace
from tests.diagnose.examples import EXAMPLES, MIB, PEAK, at, held, recording, traces


def problems(run: Recording) -> list[tuple[str, int | None]]:
    return [(f.id, f.source.line if f.source else None) for f in diagnose(run) if f.severity == "problem"]


def on_line(run: Recording, line: int) -> Recording:
    return replace(run, samples=tuple(sample._replace(source=at(line)) for sample in run.samples))


def array(holder: str, size: float = 120, *, objects: int = 1) -> tuple[Held, ...]:
    """An array in two censuses, of one size."""
    late = held("array", holder, objects, size)
    return (late._replace(time=3.0, step=2), late)


FILL = "feats = np.empty((9600, 3600))\nfor i in range(20):\n    feats[i] = net.predict_on_batch(x[i])\n"
FEATS = "feats (global of train.py)"
REPLAY = """\
class Replay:
    def __init__(self):
        self.frames = np.zeros((9600, 84, 84))
    def add(self, i, frame):
        self.frames[i] = frame
replay = Replay()
for i in range(20):
    act(x)
    replay.add(i, frame)
"""
PARTS = "data = {'a': np.empty(9), 'b': np.empty(9)}\nfor i in range(20):\n    data['a'][i] = f(x)\n"
OUT = "feats = np.empty((9600, 3600))\nfor i in range(20):\n    np.multiply(f(x), 2, out=feats[i])\n"


@pytest.mark.parametrize("code, holder, line", [
    (FILL, FEATS, 3), (OUT, FEATS, 3), (REPLAY, "replay.frames (global of train.py)", 8),
    (PARTS, "data['a'] (dict of 2, global of train.py)", 3),
])  # fmt: skip
def test_an_array_that_a_loop_fills_is_no_growth(code: str, holder: str, line: int) -> None:
    run = on_line(recording(code, host=6, kind="predict", line=line, census=array(holder)), line)
    assert problems(run) == []
    assert [id_ for id_, _ in problems(replace(run, census=()))] == ["host-growth"]


def test_what_grows_beside_an_array_that_fills_is_still_said() -> None:
    run = on_line(recording(FILL, host=12, kind="predict", line=3, census=array(FEATS, 100)), 3)
    assert problems(run) == [("host-growth", 3)]
    assert diagnose(run)[0].bytes == (17 * 12 - 100) * MIB


def test_an_array_that_was_full_before_the_first_step_explains_nothing() -> None:
    code = "data = np.empty(9)\nfor i in range(9):\n    data[i] = read(i)\nfor step in range(20):\n    f(data)\n"
    run = recording(code, host=6, line=5, census=array("data (global of train.py)"))
    early = Sample(0.01, "inside", None, 0, 0, 0, 500 * MIB, source=at(3))
    run = replace(on_line(run, 5), samples=(early, *on_line(run, 5).samples))
    assert filled(run) == 0
    assert problems(run) == [("host-growth", 5)]


@pytest.mark.parametrize("census", [
    array("cache (dict of 20, global of train.py)"),
    (array(FEATS, 60)[0], array(FEATS, 120)[1]),
])  # fmt: skip
def test_a_container_of_arrays_or_an_array_of_another_size_is_not_one_that_fills(census: tuple[Held, ...]) -> None:
    code = FILL + "cache = {}\nfor k in range(20):\n    cache[k] = f(x)\n"
    assert filled(on_line(recording(code, line=3, census=census), 6)) == 0


SEARCH = """\
for depth in (1, 2, 3):
    model = build(depth)
    model.compile('adam')
    model.fit(x)
    scores.append(model.evaluate(x)[1])
"""


def trained(number: int, each: int = 6, leak: float = 0) -> Recording:
    """Models made, compiled and trained in a loop: the process grows by 10 MiB with each, in its first two steps."""
    made = (
        Made("model", "Sequential", at(2), number), Made("model", "Functional", at(2), number),
        Made("layer", "Layer", at(2), 4 * number), Made("variable", "ResourceVariable", at(2), 4 * number),
        Made("optimizer", "Adam", at(3), number),
    )  # fmt: skip
    rss = PEAK - round((10 * number + leak * number * each) * MIB)
    steps: list[Step] = []
    for i in range(number * each):
        rss += round(((5 if i % each < 2 else 0) + leak) * MIB)
        steps.append(Step("fit", "f", at(4), i + 0.1, i + 0.9, 50 * MIB, 60 * MIB, rss))
    run = recording(SEARCH, kind="fit", steps=number * each, line=4, made=made, traces=built(number, each))
    samples = tuple(
        sample._replace(rss_bytes=steps[min(i // 2, len(steps) - 1)].rss_bytes, source=at(5))
        for i, sample in enumerate(run.samples)
    )
    return replace(run, steps=tuple(steps), samples=samples)


def built(number: int, each: int) -> tuple[Trace, ...]:
    """The train function of each model."""
    found = traces(number, lambda i: "first call", lambda i: i, size=0.1, line=4)
    name = "multi_step_on_iterator"
    return tuple(t._replace(time=i * each + 0.3, function=name, defined=None) for i, t in enumerate(found))


def test_three_models_trained_in_a_loop_are_nobodys_fault() -> None:
    assert problems(trained(3)) == []


def test_what_many_models_leave_is_theirs_and_not_the_line_of_their_scores() -> None:
    found = diagnose(trained(5))
    assert problems(trained(5)) == [("models-never-freed", 2)]
    assert "TensorFlow keeps each that it trained" in found[0].title
    assert found[0].bytes_per_step == round(found[0].bytes / 30)


def test_what_grows_while_one_model_is_trained_is_not_the_models() -> None:
    assert problems(trained(3, leak=4)) == [("host-growth", 5)]


def test_compile_of_one_model_again_is_found_beside_other_models() -> None:
    run = trained(3)
    again = tuple(m._replace(number=12) if m.kind == "optimizer" else m for m in run.made)
    assert ("compiled-again", 3) in problems(replace(run, made=again))
    twice = tuple(m._replace(number=6) if m.kind == "optimizer" else m for m in run.made)
    assert problems(replace(run, made=twice)) == []


def test_layers_without_tables_are_let_go() -> None:
    run = EXAMPLES["layers-made-again"].bad
    plain = recording("for step in range(20):\n    d = Dense(9)\n    use(d)\n", host=5, made=run.made)
    assert "layers-made-again" not in [f.id for f in diagnose(plain)]
    named = tuple(made._replace(name="StringLookup") for made in run.made)
    assert problems(replace(plain, made=named)) == [("layers-made-again", 2)]


MEMBERS = "members = []\nfor k in range(5):\n    model = build()\n    model.fit(x)\n    members.append(model)\n"


def kept(functions: int) -> Finding:
    rows = (held("model", "members (list of 5, global of train.py)", 5, 0, 3), held("variable", "", 20, 300, 3))
    made = (Made("model", "Sequential", at(3), 5),)
    found = diagnose(recording(MEMBERS, kind="fit", line=4, census=rows, made=made, traces=built(functions, 4)))
    assert (found[0].id, found[0].severity, found[0].source) == ("models-kept", "problem", at(5))
    return found[0]


def test_models_that_tensorflow_keeps_too_are_not_said_to_be_only_the_lists() -> None:
    eager, graph = kept(0), kept(5)
    assert "nothing but `members` holds them" in eager.fix and eager.saving_bytes == 240 * MIB
    assert "goes only with its process" in graph.fix and "nothing but" not in graph.fix
    assert graph.saving_bytes is None


@pytest.mark.parametrize("name", EXAMPLES)
def test_bytes_a_step_are_of_the_runs_steps(name: str) -> None:
    for finding in diagnose(EXAMPLES[name].bad):
        steps = sum(step.repeats for step in EXAMPLES[name].bad.steps)
        assert finding.bytes_per_step is None or steps * finding.bytes_per_step < 1.2 * finding.bytes


def test_a_run_without_steps_has_no_bytes_a_step_and_is_a_leak_all_the_same() -> None:
    run = EXAMPLES["models-kept"].bad
    found = diagnose(replace(run, steps=()))[0]
    assert (found.id, found.bytes_per_step) == ("models-kept", None)
    assert leak_remedies([found])[0].saving_bytes == found.saving_bytes
    assert {rule.id for rule in RULES if rule.family in ("leak", "retrace")} >= MADE_AGAIN


STATISTICS = "mean = raw.mean(axis=0, dtype=np.float64)\nmodel.fit(x)\n"


def levels(*sizes: tuple[int, int]) -> Recording:
    """A run that was on a line, with so many MiB, one sample after the other."""
    run = recording(STATISTICS, kind="fit", line=2)
    samples = [
        Sample(i * 0.1, "inside", None, 0, 0, 0, size * MIB, source=at(line)) for i, (line, size) in enumerate(sizes)
    ]
    return replace(run, samples=tuple(samples), steps=tuple(s._replace(rss_bytes=560 * MIB) for s in run.steps))


def test_what_a_line_needs_for_itself_alone_is_not_kept() -> None:
    before, during, after = [(3, 550)], [(1, 560), (1, 650), (1, 700)], [(2, 560)] * 6
    assert "keeps it" not in "".join(f.title for f in diagnose(levels(*before, *during, *after)))
    stays = diagnose(levels(*before, *during, *[(2, 710)] * 6))
    assert (stays[0].id, stays[0].source, stays[0].bytes) == ("host-peak", at(1), 150 * MIB)


def test_what_is_let_go_soon_after_its_line_is_not_kept() -> None:
    run = levels((3, 550), (1, 600), (1, 700), (3, 700), (2, 560), (2, 560), (2, 560), (2, 560))
    assert "keeps it" not in "".join(f.title for f in diagnose(run))
