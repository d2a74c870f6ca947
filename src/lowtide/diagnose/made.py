"""Things made again and again that should be made once: models, optimizers, layers, datasets, variables, a profiler."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from lowtide.diagnose.code import read_code
from lowtide.diagnose.evidence import (
    alive_pipelines,
    called_in_loop,
    device_goes_on,
    grown,
    is_worth,
    likeliest,
    line_that_keeps,
    names_in,
    only_put,
    rise,
    step_count,
    unexplained,
)
from lowtide.diagnose.origins import is_handed_out
from lowtide.diagnose.types import PROBLEM, Finding
from lowtide.program import Source
from lowtide.record import Made, Recording
from lowtide.record.extremes import fullest_stages

MANY = 4
NOTABLE = 0.02


def models_kept(recording: Recording) -> Iterator[Finding]:
    """Models of which there are ever more: held by a name, or by TensorFlow after they were trained."""
    code = read_code(recording)
    times = sorted({row.time for row in recording.census})
    last = [row for row in recording.census if times and row.time == times[-1]]
    models = [row for row in last if row.kind == "model" and row.objects >= MANY and row.made is not None]
    if not models:
        yield from _never_freed(recording)
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
    saving = round(size * (most - 1) / most)
    if named:
        title = f"{most} models are alive at once, {most - 1} of them kept"
        fix = f"take what is needed of a model and let it go: nothing but `{row.holder.partition(' (')[0]}` holds them"
    else:
        title = f"{most} models were made and none was freed: TensorFlow keeps a model once it was trained or traced"
        fix = "make one model and reset its weights (`set_weights`), or train each in a process of its own"
    yield Finding(
        "models-kept" if named else "models-never-freed", PROBLEM, title, size, source, code.text(source), fix,
        round(size / most), row.holder, saving,
    )  # fmt: skip


def _passed_to_a_function(recording: Recording, models: int) -> bool:
    """Whether a tf.function was traced anew for nearly each: with every trace it keeps the model."""
    traces = Counter(trace.owner for trace in recording.traces if "Python object became" in trace.cause)
    return 2 * max(traces.values(), default=0) > models


def _never_freed(recording: Recording) -> Iterator[Finding]:
    """No model is left in Python, and its memory is there: it grows with each that is made."""
    made = [m for m in recording.made if m.kind == "model" and m.number >= MANY]
    size = rise(recording, "device_bytes")
    if not made or not device_goes_on(recording) or not is_worth(recording, size, NOTABLE):
        return
    last = next((s.device_bytes for s in reversed(recording.samples) if s.device_bytes is not None), 0)
    if 2 * last < size:
        return  # it came and went
    most = max(made, key=lambda m: m.number)
    source = called_in_loop(recording, most.source)
    yield Finding(
        "models-never-freed", PROBLEM, f"{most.number} models were made, and TensorFlow keeps each that it trained",
        size, source, read_code(recording).text(source),
        "make one model and reset its weights (`set_weights`), or train each in a process of its own",
        round(size / most.number), "", size,
    )  # fmt: skip


def slots_made_again(recording: Recording) -> Iterator[Finding]:
    """Optimizer slots allocated in a step after warm-up: the optimizer is new each time."""
    for detail in recording.details:
        if detail.reason != "after warm-up":
            continue
        slots = sum(a.chunk_bytes for a in detail.allocations if a.category == "optimizer state" and a.start)
        size = slots + max(0, unexplained(recording))
        if slots and is_worth(recording, size, NOTABLE) and _is_new_each_step(recording):
            source, count, holder = _optimizer_line(recording)
            code = read_code(recording)
            yield Finding(
                "optimizer-made-again", PROBLEM, f"optimizer slots are allocated anew in each step: {count} optimizers",
                size, source, code.text(source),
                "make the optimizer once, before the loop; assign to its learning_rate to change it",
                slots, holder, size,
            )  # fmt: skip
            return


EACH = 0.6
"""So many optimizers a step are one for each; fewer are one for each client, fold or epoch, which may be meant."""


def _is_new_each_step(recording: Recording) -> bool:
    """Whether optimizers are made as often as they are used, and not one with each of as many models."""
    most = Counter[str]()
    for made in recording.made:
        most[made.kind] = max(most[made.kind], made.number)
    used = sum(step.repeats for step in recording.steps if step.kind in ("update", "function", "fit"))
    return not most["optimizer"] or most["model"] < most["optimizer"] >= EACH * used


def _optimizer_line(recording: Recording) -> tuple[Source | None, int, str]:
    code = read_code(recording)
    made = sorted((m for m in recording.made if m.kind == "optimizer"), key=lambda m: -m.number)
    if made:
        return made[0].source, made[0].number, ""
    held = [r for r in recording.census if r.kind == "variable" and ("_momentum" in r.holder or "opt" in r.holder)]
    for row in held:
        for name in names_in(row.holder):
            line = likeliest(code, [at for at in code.assigns(name) if code.in_loop(at)])
            if line is not None:
                return line, step_count(recording), row.holder
    return None, step_count(recording), ""


def compiled_again(recording: Recording) -> Iterator[Finding]:
    """`compile` in a loop: each call brings a new optimizer and a new train function, and the old stay."""
    code = read_code(recording)
    lines = [line for line, _ in code.calls(".compile") if code.in_loop(line)]
    source = likeliest(code, lines)
    optimizers = sum(m.number for m in recording.made if m.kind == "optimizer" and m.source == source)
    if source is None or optimizers < 3:
        return
    size = rise(recording, "rss_bytes")
    if is_worth(recording, size, NOTABLE) and not any(m.kind == "model" and m.number >= MANY for m in recording.made):
        yield Finding(
            "compiled-again", PROBLEM, f"compile was called {optimizers} times: each leaves its graphs behind",
            size, source, code.text(source), "compile once; set `model.optimizer.learning_rate` to change it",
            round(size / optimizers), "", size,
        )  # fmt: skip


def iterators_kept(recording: Recording) -> Iterator[Finding]:
    """Iterators of tf.data of which there are ever more: each has the buffers of its whole pipeline."""
    sizes: dict[int, int] = {}
    for stage in fullest_stages(recording):
        sizes[stage.pipeline] = sizes.get(stage.pipeline, 0) + stage.buffered_bytes
    alive = alive_pipelines(recording)
    size = max(sum(sizes[pipeline] for pipeline in alive), rise(recording, "device_bytes") if len(alive) >= MANY else 0)
    if len(alive) < MANY or not is_worth(recording, size, NOTABLE):
        return
    code = read_code(recording)
    made = [name for line in code.names("iter") for name in code.assigned_at(line)]
    keeping = [line for name in made for line in code.keeps(name)]
    source = likeliest(code, keeping) or only_put(recording) or likeliest(code, code.names("iter"))
    if source is None:
        return
    yield Finding(
        "iterators-kept", PROBLEM, f"{len(alive)} iterators of tf.data are alive, each with buffers of its own",
        size, source, code.text(source), "let an iterator go before the next is made, or make one and go on with it",
        round(size / len(alive)), "", round(size * (1 - 1 / len(alive))),
    )  # fmt: skip


def sessions_open(recording: Recording) -> Iterator[Finding]:
    """v1 sessions made in a loop, and the device grows with each: its variables live until it is closed."""
    code = read_code(recording)
    made = [m for m in recording.made if m.kind == "session" and m.number >= MANY and _runs_again(recording, m)]
    size = rise(recording, "device_bytes")
    if not made or device_goes_on(recording) is False or not is_worth(recording, size, NOTABLE):
        return
    most = max(made, key=lambda m: m.number)
    yield Finding(
        "sessions-left-open", PROBLEM, f"{most.number} sessions were opened, each with variables of its own",
        size, most.source, code.text(most.source),
        "`with tf.compat.v1.Session() as session:` closes it at the end; or open one before the loop",
        round(size / most.number), "", size,
    )  # fmt: skip


_CLOSURES = "TensorFlow keeps the closures of from_generator, py_function and numpy_function, and all they captured"
REMEDY = {
    "layer": ("layers-made-again", "layers", "make the layer once: tables of lookup layers are never freed"),
    "dataset": ("dataset-made-again", "datasets", f"build the dataset once: {_CLOSURES}"),
    "variable": ("variables-made-again", "variables", "make the variables once and assign to them"),
    "function": ("closures-kept", "tf.functions", f"make the function once: {_CLOSURES}"),
}


def made_in_loop(recording: Recording) -> Iterator[Finding]:
    """Growth that no Python object accounts for, and a line in a loop that makes things TensorFlow holds on to."""
    size = unexplained(recording)
    if not is_worth(recording, size, NOTABLE):
        return
    code = read_code(recording)
    repeated = [m for m in recording.made if m.number >= MANY and _is_plain(m) and _runs_again(recording, m)]
    owners = any(m.kind in ("optimizer", "model", "session") for m in repeated)
    found = [
        m for m in repeated
        if m.kind in REMEDY and not (owners and m.kind in ("variable", "layer")) and _is_suspect(code.text(m.source), m)
        and (m.kind != "variable" or _pile_up(recording, m))
    ]  # fmt: skip
    if not found:
        return
    made = max(found, key=lambda m: _suspicion(code.text(m.source), m))
    id_, plural, fix = REMEDY[made.kind]
    own = made.kind == "dataset" and not is_handed_out(code, made.source)
    source = made.source if own else called_in_loop(recording, made.source)
    yield Finding(
        id_, PROBLEM, f"{made.number} {plural} were made on one line, and the process grew with each",
        size, source, code.text(source), fix, round(size / max(1, made.number)), "", size,
    )  # fmt: skip


_NEVER_RELEASED = ("from_generator", "py_function", "numpy_function", "py_func", "Lookup", "Vectorization")


def _is_plain(made: Made) -> bool:
    """What assignments return counts as a variable and is none."""
    return made.kind != "variable" or made.name == "ResourceVariable"


def _runs_again(recording: Recording, made: Made) -> bool:
    code = read_code(recording)
    return code.ran(made.source) and code.in_loop(made.source)


def _pile_up(recording: Recording, made: Made) -> bool:
    """Whether variables become more: those of an optimizer are made in a loop too, all in its first turn."""
    looks = {row.time for row in recording.census}
    if len(looks) < 2:
        return made.number >= step_count(recording)
    return any(g.row.kind == "variable" and g.objects >= MANY for g in grown(recording))


def _is_suspect(text: str, made: Made) -> bool:
    """Datasets and functions go when nobody needs them, but for those whose closures TensorFlow keeps."""
    return made.kind in ("layer", "variable") or any(word in text for word in _NEVER_RELEASED)


def _suspicion(text: str, made: Made) -> tuple[bool, bool, int]:
    """What is known never to be released comes first."""
    return any(word in text for word in _NEVER_RELEASED), made.kind != "function", made.number
