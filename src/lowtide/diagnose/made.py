"""Things made again and again that should be made once: optimizers, sessions, iterators, layers, datasets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from lowtide.diagnose.code import read_code
from lowtide.diagnose.evidence import (
    alive_pipelines,
    called_in_loop,
    grown,
    is_worth,
    last_census,
    likeliest,
    names_in,
    only_put,
    per_step,
    unexplained,
)
from lowtide.diagnose.models import MANY, NOTABLE, made_again
from lowtide.diagnose.origins import is_handed_out, made_for
from lowtide.diagnose.trends import device_goes_on, rise
from lowtide.diagnose.types import PROBLEM, Finding
from lowtide.program import Source
from lowtide.record import Made, Recording
from lowtide.record.extremes import fullest_stages
from lowtide.record.views import step_count


def slots_made_again(recording: Recording) -> Iterator[Finding]:
    """Optimizer slots allocated in a step after warm-up: the optimizer is new each time."""
    for detail in recording.details:
        if detail.reason != "after warm-up":
            continue
        slots = sum(a.chunk_bytes for a in detail.allocations if a.category == "optimizer state" and a.start)
        growth = max(0, unexplained(recording))
        size = slots + growth
        if slots and is_worth(recording, size, NOTABLE) and _is_new_each_step(recording):
            source, count, holder = _optimizer_line(recording)
            code = read_code(recording)
            yield Finding(
                "optimizer-made-again", PROBLEM, f"optimizer slots are allocated anew in each step: {count} optimizers",
                size, source, code.text(source),
                "make the optimizer once, before the loop; assign to its learning_rate to change it",
                per_step(recording, growth), holder, size,
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


SAME = 3
"""So many compiles of one model are too many: one before a part of it is frozen and one after are not."""


def compiled_again(recording: Recording) -> Iterator[Finding]:
    """`compile` of one model in a loop: each call brings a new optimizer and a new train function, and the old stay."""
    code = read_code(recording)
    lines = [line for line, _ in code.calls(".compile") if code.in_loop(line)]
    source = likeliest(code, lines)
    optimizers = sum(m.number for m in recording.made if m.kind == "optimizer" and m.source == source)
    if source is None or optimizers < SAME * max(1, made_again(recording)):
        return
    size = rise(recording, "rss_bytes")
    if is_worth(recording, size, NOTABLE):
        yield Finding(
            "compiled-again", PROBLEM, f"compile was called {optimizers} times: each leaves its graphs behind",
            size, source, code.text(source), "compile once; set `model.optimizer.learning_rate` to change it",
            per_step(recording, size), "", size,
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
        per_step(recording, size), "", round(size * (1 - 1 / len(alive))),
    )  # fmt: skip


def sessions_open(recording: Recording) -> Iterator[Finding]:
    """v1 sessions made in a loop, and the device grows with each: its variables live until it is closed."""
    code = read_code(recording)
    made = [m for m in recording.made if m.kind == "session" and m.number >= MANY and _runs_again(recording, m)]
    size = rise(recording, "device_bytes")
    if not made or device_goes_on(recording) is False or not is_worth(recording, size, NOTABLE):
        return
    most = max(made, key=lambda m: m.number)
    source = called_in_loop(recording, most.source) if is_handed_out(code, most.source) else most.source
    yield Finding(
        "sessions-left-open", PROBLEM, f"{most.number} sessions were opened, each with variables of its own",
        size, source, code.text(source),
        "`with tf.compat.v1.Session() as session:` closes it at the end; or open one before the loop",
        per_step(recording, size), "", size,
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
        and (m.kind != "variable" or (_pile_up(recording, m) and not _is_somebodys(recording, m)))
    ]  # fmt: skip
    if not found:
        return
    made = max(found, key=lambda m: _suspicion(code.text(m.source), m))
    id_, plural, fix = REMEDY[made.kind]
    own = made.kind == "dataset" and not is_handed_out(code, made.source)
    source = made.source if own else called_in_loop(recording, made.source)
    if made.kind == "variable" and source is not None:
        source = made_for(code, source) or source  # whoever makes the variables is itself made again
    yield Finding(
        id_, PROBLEM, f"{made.number} {plural} were made on one line, and the process grew with each",
        size, source, code.text(source), fix, per_step(recording, size), "", size,
    )  # fmt: skip


_NEVER_RELEASED = ("from_generator", "py_function", "numpy_function", "py_func", "Lookup", "Vectorization")


def _is_plain(made: Made) -> bool:
    """What assignments return counts as a variable and is none."""
    return made.kind != "variable" or made.name == "ResourceVariable"


def _runs_again(recording: Recording, made: Made) -> bool:
    code = read_code(recording)
    return code.ran(made.source) and code.in_loop(made.source)


SLOTS, ENOUGH_LOOKS = 4, 3
"""For each variable of others, an optimizer makes no more than these; and so many looks tell that more come."""


def _pile_up(recording: Recording, made: Made) -> bool:
    """Whether variables become more: those of an optimizer are made in a loop too, all in its first turn."""
    looks = {row.time for row in recording.census}
    others = sum(r.objects for r in last_census(recording) if r.kind == "variable" and r.made != made.source)
    if len(looks) < ENOUGH_LOOKS and 0 < made.number <= SLOTS * others:
        return False
    if len(looks) < 2:
        return made.number >= step_count(recording)
    counts = [sum(r.objects for r in recording.census if r.time == t and r.kind == "variable") for t in sorted(looks)]
    if len(looks) >= ENOUGH_LOOKS and not any(later > before for before, later in pairwise(counts[1:])):
        return False  # what there was more of at the second look was a model's, or an optimizer's
    return any(g.row.kind == "variable" and g.objects >= MANY for g in grown(recording))


def _is_somebodys(recording: Recording, made: Made) -> bool:
    """Whether its line makes what has variables of its own: these go or stay with that."""
    return any(m.source == made.source and m.kind in ("layer", "model", "optimizer") for m in recording.made)


def _is_suspect(text: str, made: Made) -> bool:
    """What is made goes when nobody needs it, but for closures and tables that TensorFlow keeps, and for variables."""
    return made.kind == "variable" or _is_never_released(text, made)


def _is_never_released(text: str, made: Made) -> bool:
    return any(word in text or word in made.name for word in _NEVER_RELEASED)


def _suspicion(text: str, made: Made) -> tuple[bool, bool, int]:
    """What is known never to be released comes first."""
    return _is_never_released(text, made), made.kind != "function", made.number
