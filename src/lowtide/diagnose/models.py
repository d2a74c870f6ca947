"""Models of which there are ever more: held by a name, or by TensorFlow once it has trained them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from lowtide.diagnose.code import read_code
from lowtide.diagnose.evidence import (
    are_replaced,
    called_in_loop,
    is_ensemble,
    is_users,
    is_worth,
    last_census,
    line_that_keeps,
    per_step,
    unexplained,
)
from lowtide.diagnose.trends import device_goes_on, rise
from lowtide.diagnose.types import ADVICE, PROBLEM, Finding
from lowtide.program import Source
from lowtide.record import Recording

MANY = 4
NOTABLE = 0.02
RESET = "make one model and reset its weights (`set_weights`), or train each in a process of its own"


def made_again(recording: Recording) -> int:
    """How many models lines made that ran more than once. A Sequential has a Functional inside, which is no other."""
    number: Counter[str] = Counter()
    for made in recording.made:
        if made.kind == "model" and made.number > 1:
            number[made.name] += made.number
    return number.total() - min(number["Sequential"], number["Functional"])


def trained_again(recording: Recording) -> int:
    """How many models that one line made Keras trained in graph mode: each has a train function of its own."""
    fits = {step.source for step in recording.steps if step.kind == "fit"}
    functions = {t.owner for t in recording.traces if t.called in fits and "step_on_" in t.function}
    return min(len(functions), made_again(recording))


def models_kept(recording: Recording) -> Iterator[Finding]:
    """Models of which there are ever more: held by a name, or by TensorFlow after they were trained."""
    code = read_code(recording)
    times = sorted({row.time for row in recording.census})
    last = [row for row in recording.census if times and row.time == times[-1]]
    models = [row for row in last if row.kind == "model" and row.objects >= MANY and row.made is not None]
    if not models:
        yield from _on_device(recording)
        return
    weights = sum(row.bytes for row in last if row.kind == "variable" and row.objects >= MANY)
    size = weights + sum(row.bytes for row in last if row.kind == "graph")
    first = [row for row in recording.census if row.time == times[0] and row.kind == "model"]
    if len(times) == 1 or max(row.objects for row in models) > max((row.objects for row in first), default=0):
        size = max(size, unexplained(recording))  # functions and layers of a model have no size of their own
    if not is_worth(recording, size, NOTABLE):
        return
    row = max(models, key=lambda row: (bool(row.holder), row.made.line if row.made else 0))  # the outermost: made last
    named = bool(row.holder) and "in keras" not in row.holder and "in tensorflow" not in row.holder
    source = line_that_keeps(recording, row) if named else called_in_loop(recording, row.made)
    most = max(row.objects for row in models)
    if not named and _passed_to_a_function(recording, most):
        return
    title = f"{most} models are alive at once, {most - 1} of them kept"
    if not named:
        title = f"{most} models were made and none was freed: TensorFlow keeps a model once it was trained or traced"
    severity = ADVICE if named and is_ensemble(code, row.holder, source) else PROBLEM
    promised = not named or trained_again(recording) < MANY
    yield Finding(
        "models-kept" if named else "models-never-freed", severity, title, size, source, code.text(source),
        _fix(recording, row.holder) if named else RESET,
        per_step(recording, size), row.holder, round(size * (most - 1) / most) if promised else None,
    )  # fmt: skip


def _fix(recording: Recording, holder: str) -> str:
    """For models that a name holds; of those that were trained in a graph the name is not the only one that does."""
    if trained_again(recording) >= MANY:
        return (
            "keep what is needed of each (weights, predictions) instead of the models; what TensorFlow itself keeps of "
            "a model that it trained goes only with its process"
        )
    return f"take what is needed of a model and let it go: nothing but `{holder.partition(' (')[0]}` holds them"


def _passed_to_a_function(recording: Recording, models: int) -> bool:
    """Whether a tf.function was traced anew for nearly each: with every trace it keeps the model."""
    traces = Counter(trace.owner for trace in recording.traces if "Python object became" in trace.cause)
    return 2 * max(traces.values(), default=0) > models


def _on_device(recording: Recording) -> Iterator[Finding]:
    """No model is left in Python, and its memory is there: the device's grows with each that is made.

    Variables that a name of the user's holds are the name's.
    """
    named = sum(row.bytes for row in last_census(recording) if row.kind == "variable" and is_users(row.holder))
    size = rise(recording, "device_bytes") - named
    if are_replaced(recording, size):
        return
    if not device_goes_on(recording) or not is_worth(recording, size, NOTABLE):
        return
    last = next((s.device_bytes for s in reversed(recording.samples) if s.device_bytes is not None), 0)
    if 2 * last >= size:  # else it came and went
        yield from never_freed(recording, size)


def never_freed(recording: Recording, size: int) -> Iterator[Finding]:
    """Growth that is of the models which a line made again and again, where there are many."""
    made = [m for m in recording.made if m.kind == "model" and m.number >= MANY]
    if not made:
        return
    most = max(made, key=lambda m: (m.number, m.name != "Functional"))
    source: Source | None = called_in_loop(recording, most.source)
    yield Finding(
        "models-never-freed", PROBLEM, f"{most.number} models were made, and TensorFlow keeps each that it trained",
        size, source, read_code(recording).text(source), RESET, per_step(recording, size), "", size,
    )  # fmt: skip
