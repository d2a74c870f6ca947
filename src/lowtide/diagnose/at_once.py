"""What is computed for too many rows at once: a model on everything, an evaluation, a Jacobian, a map by pfor."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from lowtide.diagnose.code import Code, read_code
from lowtide.diagnose.evidence import is_worth, likeliest, step_of
from lowtide.diagnose.origins import sized_by
from lowtide.diagnose.step import goes_round, loop_stack, sizes_in
from lowtide.diagnose.syntax import names_passed
from lowtide.diagnose.types import ADVICE, PROBLEM, Finding
from lowtide.program import Source
from lowtide.record import TRAINING_KINDS, Detail, Recording, Step
from lowtide.record.views import fullest_detail
from lowtide.units import format_size

NOTABLE, PART = 0.05, 0.125
BATCH = 256
"""Rows that a pass over data takes at a time, when nobody says."""
ONCE, FEW = 2, 8
"""Calls. What is called so few times is called for all there is; so many, where nothing trains and it gets all of a
name."""
_FIRST = re.compile(r"[\[(]\s*(\d+)")


def jacobian(recording: Recording) -> Iterator[Finding]:
    """A Jacobian computed for all rows at once, by pfor."""
    code = read_code(recording)
    calls = [line for line, call in code.calls(".jacobian", ".batch_jacobian", "hessians") if not _is_row_by_row(call)]
    gradients = [step for step in recording.steps if step.kind == "gradient" and step.source in calls]
    found = [(_beyond(step), step.source) for step in gradients]
    for detail in recording.details:
        size = _by_pfor(detail)
        step = step_of(recording, detail)
        found.append((size, step.source if step is not None and step.source in calls else likeliest(code, calls)))
    size, source = max(found, key=lambda pair: pair[0], default=(0, None))
    if not calls or not is_worth(recording, size, NOTABLE):
        return
    yield Finding(
        "jacobian-all-at-once", PROBLEM, "a Jacobian is computed for all its rows at once (pfor)",
        size, source, code.text(source),
        "experimental_use_pfor=False computes row by row; or cut the outputs into pieces; batch_jacobian where rows do "
        "not mix", None, "", size,
    )  # fmt: skip


def vectorized(recording: Recording) -> Iterator[Finding]:
    """`vectorized_map` computes for all elements what is meant for one, by pfor."""
    code = read_code(recording)
    source = likeliest(code, [line for line, _ in code.calls("vectorized_map")])
    size = max(map(_by_pfor, recording.details), default=0)
    if source is not None and is_worth(recording, size, NOTABLE):
        yield Finding(
            "vectorized-at-once", ADVICE, "`vectorized_map` computes for all its elements at once (pfor)",
            size, source, code.text(source),
            "`tf.map_fn` computes one by one; or map over the batch in pieces", None, "", size,
        )  # fmt: skip


_COPIES = ("Tile", "BroadcastTo")
_COPYING = (".tile", ".repeat", ".broadcast_to", "RepeatVector", "UpSampling")


def tiled(recording: Recording) -> Iterator[Finding]:
    """Copies of one tensor, written out for what would have read the one again and again by broadcasting."""
    code = read_code(recording)
    lines = {line for line, _ in code.calls(*_COPYING)}
    detail = fullest_detail(recording)
    sizes: Counter[Source] = Counter()
    for a in detail.at_peak if detail is not None else ():
        site = detail.sites[a.site] if detail is not None else None
        if site is not None and a.start and site.kind in _COPIES and site.source in lines:
            sizes[site.source] += a.chunk_bytes
    for source, size in sizes.items():
        if is_worth(recording, size, NOTABLE):
            yield Finding(
                "copies-written-out", ADVICE, "copies of one tensor are written out, each as large as the tensor",
                size, source, code.text(source),
                "leave a dimension of 1 where the copies would be: `+`, `*`, `tf.where`, `tf.matmul` and their like "
                "broadcast it, and write nothing", None, "", size,
            )  # fmt: skip


def _by_pfor(detail: Detail) -> int:
    """Bytes at the peak of ops that pfor made of others."""
    return sum(a.chunk_bytes for a in detail.at_peak if a.start and "pfor" in detail.sites[a.site].op)


def _beyond(step: Step) -> int:
    """What a step had at its highest beyond what it left."""
    return (step.device_peak_bytes or 0) - (step.device_bytes or 0)


def _is_row_by_row(call: ast.Call) -> bool:
    return any(
        keyword.arg == "experimental_use_pfor" and getattr(keyword.value, "value", True) is False
        for keyword in call.keywords
    )


def called_on_everything(recording: Recording) -> Iterator[Finding]:
    """A model or function called on very many rows, where batches would do; `predict` with a batch of all rows."""
    code = read_code(recording)
    in_loops = sum(finding.bytes for finding in loop_stack(recording)) if goes_round(code) else 0
    trains: Counter[Source | None] = Counter()
    for one in recording.steps:
        if one.kind in (*TRAINING_KINDS, "gradient"):
            trains[one.source] += one.repeats
    for detail in recording.details:
        step = step_of(recording, detail)
        grown = detail.peak_bytes - detail.begin_bytes
        if step is None or step.source is None or not is_worth(recording, grown, PART):
            continue
        if 2 * max(_by_pfor(detail), in_loops) > grown:
            continue  # that is told as what it is
        rows, share = _rows(detail)
        source = None
        if step.kind == "call":
            calls = sum(s.repeats for s in recording.steps if s.kind == step.kind and s.source == step.source)
            all_of_it = calls <= FEW and not trains and _is_given_all(code, step.source)
            seldom = calls <= ONCE and calls not in trains.values()  # as often as it trains: one of a short training's
            if rows > (BATCH if all_of_it else 4 * BATCH) and (all_of_it or seldom):
                source = step.source
        elif step.kind in ("predict", "evaluate") and rows > BATCH:
            source = sized_by(code, step.source)
        if source is not None:
            saving = round(grown * share * (1 - BATCH / rows))
            yield Finding(
                "called-on-everything", PROBLEM, f"{step.name} is called on {rows:,} rows at once, as is each layer",
                grown, source, code.text(source),
                f"go through the data in batches ({BATCH} rows at a time here), in a tf.function", None, "", saving,
            )  # fmt: skip
            return


def _is_given_all(code: Code, source: Source) -> bool:
    """Whether the statement passes a name that the script itself gave a value once, outside all loops and functions; or
    one that its function was given such a name for. What is given back what it returned goes through no data."""
    statement = code.statement(source)
    passed = names_passed(statement) if statement is not None else []
    if {*passed} & {*code.assigned_at(source)}:
        return False
    file = code.file(source.file)
    function = file.enclosing(source.line) if file is not None else None
    parameters = [argument.arg for argument in function.args.args] if function is not None else []
    names = [name for name in passed if name not in parameters]
    if function is not None:
        names += _given_for(code, function.name, parameters, passed)
    return any(_is_set_once(code, name, source.file) for name in names)


def _is_set_once(code: Code, name: str, file: str) -> bool:
    lines = code.assigns(name, file)
    return len(lines) == 1 and not code.in_loop(lines[0]) and not code.in_function(lines[0])


def _given_for(code: Code, function: str, parameters: Sequence[str], passed: Sequence[str]) -> list[str]:
    """Names that are given for those parameters of a function that are `passed` on, where it is called."""
    parameters = parameters[1:] if parameters[:1] == ["self"] else parameters
    given = list[str]()
    for line, call in code.calls(function):
        if {node.id for node in call.args if isinstance(node, ast.Name)} & {*code.assigned_at(line)}:
            continue
        values = dict(zip(parameters, call.args, strict=False)) | {k.arg: k.value for k in call.keywords if k.arg}
        given += [value.id for name in passed if isinstance(value := values.get(name), ast.Name)]
    return given


MOST = 0.8
"""What has this part of it explains it."""


def evaluated_at_once(recording: Recording) -> Iterator[Finding]:
    """`evaluate`, `predict`, the validation in `fit` or a call beside it needs more than training: a larger batch."""
    train = max((_beyond(step) for step in recording.steps if step.kind in TRAINING_KINDS), default=0)
    op_by_op = any(step.kind == "gradient" for step in recording.steps)  # then calls are the training's own
    kinds = ("evaluate", "predict") if op_by_op else ("evaluate", "predict", "call")
    others = [step for step in recording.steps if step.kind in kinds]
    highest = max(others, key=_beyond, default=None)
    if not train or highest is None or highest.source is None:
        return
    more = _beyond(highest) - train
    in_loops = sum(finding.bytes for finding in loop_stack(recording))
    if more > train / 2 and is_worth(recording, more, NOTABLE) and in_loops < MOST * more:
        rows = max((_rows(d)[0] for d in recording.details if step_of(recording, d) == highest), default=0)
        at_once = f" ({rows:,} rows at once)" if rows else ""
        yield Finding(
            "evaluated-at-once", ADVICE, f"{highest.kind}{at_once} needs {format_size(more)} more than training does",
            more, highest.source, read_code(recording).text(highest.source),
            "a smaller batch there: validation_batch_size= of fit, batch_size= of evaluate and predict", None, "", more,
        )  # fmt: skip


def _rows(detail: Detail) -> tuple[int, float]:
    """The first dimension that most of the peak's bytes have in common, and their part of what the step added."""
    rows: Counter[int] = Counter()
    weights = {sizes_in(a.shape) for a in detail.allocations if a.category == "parameters"}  # and what they are made of
    for a in detail.at_peak:
        first = _FIRST.match(a.shape)
        if a.start and first and sizes_in(a.shape) not in weights:
            rows[int(first[1])] += a.chunk_bytes
    if not rows:
        return 0, 0.0
    most, size = rows.most_common(1)[0]
    return most, size / max(1, detail.peak_bytes - detail.begin_bytes)
