"""Growth: bytes that survive from step to step, and who holds them. General: it explains what no other rule does."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from lowtide.diagnose.code import Code, read_code
from lowtide.diagnose.evidence import (
    Grown,
    are_replaced,
    container_size,
    grown,
    is_ensemble,
    is_users,
    is_worth,
    line_that_keeps,
    names_in,
)
from lowtide.diagnose.origins import cut_for, widened_for
from lowtide.diagnose.syntax import calls_in, last_name
from lowtide.diagnose.trends import goes_on, grows_afterwards, host_goes_on
from lowtide.diagnose.types import ADVICE, PROBLEM, Finding
from lowtide.program import Source
from lowtide.record import Held, Recording
from lowtide.record.types import BOUNDED, CYCLE
from lowtide.record.views import main_steps
from lowtide.units import format_size

PILE, HELD, COLLECTED = 3, 0.1, 0.06
"""So many of a form, with this part of the peak, are a pile; of what is being collected a look sees a part."""
FEW = 4
ONE_BY_ONE = "make each when it is needed and let it go, if not all of them are needed at a time"
PINS, PINNED = 4, 0.05
"""A view that shows less than one part in this of what it keeps is named for it; of so much of the peak even if no more
come."""


def kept(recording: Recording) -> Iterator[Finding]:
    """Tensors, arrays and variables of one form of which there are ever more."""
    leaks = [g for g in grown(recording) if g.row.kind in ("tensor", "array", "variable") and _is_leak(recording, g)]
    for found in leaks:
        yield _finding(recording, found)
    yield from _piles(recording, {(found.row.kind, found.row.example) for found in leaks})


def _piles(recording: Recording, known: set[tuple[str, str]]) -> Iterator[Finding]:
    """Many things of one form in a container that a loop fills, and that is full before anybody could see it grow."""
    code = read_code(recording)
    piles: dict[tuple[str, str], Held] = {}
    nobodys: dict[tuple[str, str], Held] = {}
    for row in recording.census:
        form = row.kind, row.example
        if row.kind in ("tensor", "array") and row.objects >= PILE and form not in known:
            found = piles if is_users(row.holder) else nobodys if not row.holder else {}
            found[form] = max(row, found.get(form, row), key=lambda r: r.bytes)
    for row in nobodys.values():
        yield from _collected(recording, row)
    for row in piles.values():
        if 0 < row.viewed_bytes * PINS <= row.bytes and is_worth(recording, row.bytes - row.viewed_bytes, PINNED):
            yield _finding(recording, Grown(row, row.objects, row.bytes, 0, 0))
            continue
        puts = [line for name in names_in(row.holder) for line in code.puts_into(name) if code.in_loop(line)]
        if puts and is_worth(recording, row.bytes, HELD):
            kept_at = line_that_keeps(recording, row)
            source, fix = _without_end(code, row) or _made_floats(code, row, kept_at) or (kept_at, ONE_BY_ONE)
            yield Finding(
                f"{row.kind}s-kept", ADVICE, f"{row.objects} {row.kind}s of {row.example} are held at once",
                row.bytes, source, code.text(source), fix, None, row.holder, row.bytes - row.bytes // row.objects,
            )  # fmt: skip


def _collected(recording: Recording, row: Held) -> Iterator[Finding]:
    """Nobody holds them by name: a comprehension that has not come to its end holds what it has made so far."""
    code = read_code(recording)
    line = code.comprehended_at(row.made) if row.made else None
    if line is not None and is_worth(recording, row.bytes, COLLECTED):
        yield Finding(
            f"{row.kind}s-kept", ADVICE,
            f"{row.objects} {row.kind}s of {row.example} are held at once, by what this line collects",
            row.bytes, line, code.text(line), "add each to a sum when it is made, or use it and let it go", None, "",
            row.bytes - row.bytes // row.objects,
        )  # fmt: skip


def _is_leak(recording: Recording, found: Grown) -> bool:
    """More and more of them: one in a few steps at least, or several for a run of few steps; and still going on."""
    if found.objects < 3 or not is_worth(recording, found.bytes):
        return False
    if found.row.kind == "variable" and not found.before and not read_code(recording).in_loop(found.row.made):
        return False  # one model has several variables, too
    if found.row.kind == "variable" and not found.before and _came_instead(recording, found):
        return False
    if found.row.kind == "variable" and not found.before and _were_there(recording, found):
        return False
    if found.steps and found.objects < found.steps / 50:
        return False
    if not found.steps and found.objects <= FEW and container_size(found.row.holder) is None:
        return False  # a few names of one form each, and nobody saw them come
    of = "rss_bytes" if found.row.kind == "array" else "device_bytes"
    return goes_on(recording, of) is not False or host_goes_on(recording) is True or grows_afterwards(recording, of)


def _were_there(recording: Recording, found: Grown) -> bool:
    """Whether the device has no more of them after the last step than after the first: they are a model's."""
    sizes = [step.device_bytes for _, step in main_steps(recording) if step.device_bytes is not None]
    return len(sizes) > 1 and 2 * (max(sizes) - sizes[0]) < found.bytes


def _came_instead(recording: Recording, found: Grown) -> bool:
    """Whether variables of other forms are gone, or there are no more of them than halfway: they are of the latest
    model, or two, which may be the largest; and what holds them is no larger than one model."""
    size = container_size(found.row.holder)
    if size is not None and 2 * size >= found.objects:
        return False
    times = sorted({row.time for row in recording.census})
    halfway, last = (
        sum(row.objects for row in recording.census if row.time == time and row.kind == "variable")
        for time in (times[(len(times) - 1) // 2], times[-1])
    )
    return are_replaced(recording, found.bytes) or last <= halfway


def _finding(recording: Recording, found: Grown) -> Finding:
    row = found.row
    pins = row.kind != "variable" and 0 < row.viewed_bytes * PINS <= row.bytes
    source = line_that_keeps(recording, row)
    plural = {"tensor": "tensors", "array": "NumPy arrays", "variable": "variables"}[row.kind]
    many = f"{found.before + found.objects} {plural} of {row.example}"
    if pins:
        source = (source and cut_for(read_code(recording), source)) or source
        shown, held = format_size(row.viewed_bytes), format_size(row.bytes)
        title = f"{many} are views: they show {shown} and keep {held} alive"
        fix = "copy what is kept: `.copy()` of the NumPy slice, or `tf.identity(tf.gather(x, ...))` of the tensor"
        saving = found.bytes - row.viewed_bytes
    else:
        title = f"{many} are kept, {found.objects} more since the run warmed up"
        fix = _fix(row.holder, row.kind)
        if _has_an_end(read_code(recording), row):
            title = f"{many} are kept in a container that has an end"
            source, fix = _made_floats(read_code(recording), row, source) or (source, fix)
        elif endless := _without_end(read_code(recording), row):
            source, fix = endless
        if row.objects == 1:
            title = f"one {plural.removesuffix('s')} is added to in every step: {row.example} by now"
        saving = found.bytes
    code = read_code(recording)
    wanted = row.kind == "variable" and is_ensemble(code, row.holder, source)
    severity = ADVICE if wanted or (_has_an_end(code, row) and not pins) else PROBLEM
    return Finding(
        "view-pins-buffer" if pins else f"{row.kind}s-kept", severity, title, found.bytes, source,
        read_code(recording).text(source), fix, found.per_step or None, row.holder, saving,
    )  # fmt: skip


_ENDLESS = {
    "deque": (2, "maxlen", "`deque(maxlen=...)`: the oldest then goes when a new one comes"),
    "Queue": (1, "maxsize", "queue.Queue(maxsize=4): `put` then waits until something was taken"),
    "LifoQueue": (1, "maxsize", "queue.LifoQueue(maxsize=4): `put` then waits until something was taken"),
    "SimpleQueue": (1, "", "queue.Queue(maxsize=4): `put` then waits until something was taken"),
}
"""By what they are called: how many arguments say where the end is, the last one's name, and how to have one."""


def _is_said(end: ast.expr) -> bool:
    """`maxlen=None` and `maxsize=0` say no end."""
    return not isinstance(end, ast.Constant) or bool(end.value)


def _has_an_end(code: Code, row: Held) -> bool:
    """Whether what holds them lets old ones go when it is full: by itself, or by the user's code."""
    return BOUNDED in row.holder or any(code.trims(name) for name in names_in(row.holder))


def _made_floats(code: Code, row: Held, kept_at: Source | None) -> tuple[Source, str] | None:
    """The line that makes floats of what a container that has an end is given; and what to do instead."""
    if kept_at is None or not _has_an_end(code, row) or not row.example.startswith("float"):
        return None
    line = widened_for(code, kept_at, row.example.partition(" ")[0])
    return (line, "keep them as they came (`uint8`, say); make floats of a batch when it is used") if line else None


def _without_end(code: Code, row: Held) -> tuple[Source, str] | None:
    """The line that makes the deque or queue which holds them, where it says no end; and how to say one."""
    if "(deque of" not in row.holder:
        return None
    made = ((name, line) for name in names_in(row.holder) for line in code.assigns(name) if code.ran(line))
    for name, line in made:
        for call in calls_in(code.statement(line)):
            arguments, named, fix = _ENDLESS.get(last_name(call.func), (0, "", ""))
            bounded = len(call.args) >= arguments or any(k.arg == named and _is_said(k.value) for k in call.keywords)
            if not bounded and (named == "maxlen" or code.takes_from(name)):
                return line, fix
    return None


def _fix(holder: str, kind: str) -> str:
    what = {"tensor": "a number (`float(...)`) or a small copy", "array": "what is needed of each", "variable": "one"}
    if not holder:
        return "make them once and reuse them: TensorFlow itself holds on to these"
    place = holder.partition(" (")[0]
    if CYCLE in holder:
        return f"break the cycle that `{place}` is in (weakref, or `del` its parts), or call gc.collect() now and then"
    return f"keep {what[kind]} instead, or take old ones out of `{_KEYS.sub('', place)}`"


_KEYS = re.compile(r"(\['[^']*'\])+$")
"""The keys of one of many things at the end of a chain: what has them all goes by the name before these."""
