"""Gradient tapes: kept, opened around too much, read while they record, recording what is never differentiated."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from lowtide.diagnose.code import PUTS, read_code
from lowtide.diagnose.evidence import grown, is_worth, last_census, likeliest, line_that_keeps, per_step
from lowtide.diagnose.syntax import dotted, last_name, whole
from lowtide.diagnose.types import PROBLEM, Finding
from lowtide.program import Source
from lowtide.record import Detail, Recording, Tape
from lowtide.record.views import step_count
from lowtide.units import format_size

MANY = 3
"""So many steps under one tape, or tapes alive at once, are no accident of timing."""
CERTAIN = 8
"""So many alive at once are kept, however many were made."""
NOTABLE = 0.03


def kept(recording: Recording) -> Iterator[Finding]:
    """Tapes that stay alive, with every activation they recorded."""
    for tape in recording.tapes:
        if tape.most_alive >= min(CERTAIN, max(MANY, tape.made // 3)):
            # what tapes held that were let go, or asked for their gradients, in the end, shows in the device's rise
            size = max(_held_by_tapes(recording), _rise(recording))
            if is_worth(recording, size):
                yield _kept(recording, tape, size)
        elif tape.persistent and tape.alive and tape.most_alive > tape.alive:
            yield from _kept_until_the_next(recording, tape)


def _kept_until_the_next(recording: Recording, tape: Tape) -> Iterator[Finding]:
    """One persistent tape, kept on an object while the next one records: twice the activations at the peak."""
    code = read_code(recording)
    name = code.bound_by_with(tape.source) if tape.source else ""
    source = likeliest(code, code.keeps(name)) if name else None
    size = sum(row.bytes for row in last_census(recording) if row.kind == "tensor" and not row.holder)
    if source is not None and is_worth(recording, size):
        yield Finding(
            "tapes-kept", PROBLEM, "a persistent tape is kept, with what it saw, until the next one has been recorded",
            size, source, code.text(source), "keep what its gradients gave, not the tape; `del` it after the last one",
            None, "", size,
        )  # fmt: skip


def _kept(recording: Recording, tape: Tape, size: int) -> Finding:
    held = [g.row for g in grown(recording) if g.row.kind == "tape" and g.row.holder]
    held += [row for row in recording.census if row.kind == "tape" and row.holder]
    code = read_code(recording)
    name = code.bound_by_with(tape.source) if tape.source else ""
    source = line_that_keeps(recording, held[0]) if held else likeliest(code, code.keeps(name)) if name else None
    return Finding(
        "tapes-kept", PROBLEM, f"{tape.most_alive} of {tape.made} gradient tapes are alive at once, with what they saw",
        size, source or tape.source, read_code(recording).text(source or tape.source),
        "let the tape go after `gradient`: keep the loss as a number, not the tape; `del` a persistent one",
        per_step(recording, size), held[0].holder if held else "", size,
    )  # fmt: skip


def _held_by_tapes(recording: Recording) -> int:
    """Tensors that grew and that no name of the user's holds: a tape is C++ inside, and its references do not show."""
    found = [g for g in grown(recording) if g.row.kind == "tensor"]
    return sum(g.bytes for g in found if not g.row.holder or "tape" in g.row.holder.lower()) or sum(
        g.bytes for g in found
    )


def spans_steps(recording: Recording) -> Iterator[Finding]:
    """One tape records several steps: an epoch, a validation."""
    for tape in recording.tapes:
        if tape.most_steps - _own_gradients(recording, tape) >= MANY * _steps_a_turn(recording, tape):
            size = _held_by_tapes(recording) or _rise(recording)
            if is_worth(recording, size):
                source = _runs_steps(recording, tape) or _not_differentiated(recording, tape) or tape.source
                yield Finding(
                    "tape-spans-steps", PROBLEM, f"one tape records {tape.most_steps} steps, and keeps them all",
                    size, source, read_code(recording).text(source),
                    "open a tape inside the loop, around one step; what needs no gradient belongs outside it",
                    _of_each_step(recording, tape, size), "", size,
                )  # fmt: skip


def _of_each_step(recording: Recording, tape: Tape, size: int) -> int | None:
    """What one of the run's steps adds while the tape records."""
    steps = min(tape.most_steps, step_count(recording))
    return round(size / steps) if steps else None


def _own_gradients(recording: Recording, tape: Tape) -> int:
    """Gradients that each tape is asked for while it records: no steps under it, unless its block goes round and
    computes what each is of."""
    under = read_code(recording).statement(tape.source) if tape.source else None
    if under is None or any(isinstance(part, ast.For | ast.While) and _computes(part) for part in ast.walk(under)):
        return 0
    return tape.gradients_inside // max(1, tape.made)


def _computes(loop: ast.For | ast.While) -> bool:
    """Whether the loop makes, each time, what a gradient in it is taken of."""
    parts = [part for statement in loop.body for part in ast.walk(statement)]
    made = {name for part in parts if isinstance(part, ast.Assign) for to in part.targets for name in _named(to)}
    targets = [
        part.args[0] for part in parts
        if isinstance(part, ast.Call) and last_name(part.func) in ("gradient", "jacobian") and part.args
    ]  # fmt: skip
    return not targets or any(isinstance(target, ast.Call) or made & _named(target) for target in targets)


def _steps_a_turn(recording: Recording, tape: Tape) -> int:
    """To eager code each call of a model, and each gradient, is a step, and one turn may have several: a GAN calls its
    models on many lines under one tape, an actor and its critic have a gradient each."""
    calls, gradients = (
        {step.source for step in recording.steps if step.kind == kind and step.source} for kind in ("call", "gradient")
    )
    return max(1, len(_under(recording, tape, calls) or calls), len(_under(recording, tape, gradients)))


def _under(recording: Recording, tape: Tape, lines: Iterable[Source]) -> set[Source]:
    """Those of the lines that are in the block of the tape's `with`."""
    under = read_code(recording).statement(tape.source) if tape.source else None
    if tape.source is None or not isinstance(under, ast.With):
        return set()
    return {line for line in lines if line.file == tape.source.file and line.line in whole(under)}


def _runs_steps(recording: Recording, tape: Tape) -> Source | None:
    """The one statement under the tape that calls the function whose steps it records; None where they are its own."""
    code = read_code(recording)
    file = code.file(tape.source.file) if tape.source else None
    under = code.statement(tape.source) if tape.source else None
    if file is None or not isinstance(under, ast.With):
        return None
    gradients = {step.source for step in recording.steps if step.kind == "gradient" and step.source}
    elsewhere = {f.name for line in gradients if line.line not in whole(under) and (f := file.enclosing(line.line))}
    calling = [
        node for node in ast.walk(under)
        if isinstance(node, ast.Call) and last_name(node.func) in elsewhere and file.is_live(node.lineno)
    ]  # fmt: skip
    return Source(file.name, calling[0].lineno) if len(calling) == 1 else None


def _rise(recording: Recording) -> int:
    """From the lowest to the highest that the device had at the end of a step."""
    sizes = [step.device_bytes for step in recording.steps if step.device_bytes is not None]
    return max(sizes) - min(sizes) if sizes else 0


def gradient_inside(recording: Recording) -> Iterator[Finding]:
    """`gradient` called while the tape records: it records the way back, too."""
    for tape in recording.tapes:
        if tape.gradients_inside:
            source, size = _backward(recording)
            if is_worth(recording, size, NOTABLE):
                line = _gradient_line(recording, tape) or source or tape.source
                yield Finding(
                    "gradient-inside-tape", PROBLEM,
                    f"`gradient` is called inside its own tape, {tape.gradients_inside} times: the way back is kept",
                    size, line, read_code(recording).text(line),
                    "call `gradient` after the `with` block, unless a second derivative is wanted", None, "", size,
                )  # fmt: skip


def _gradient_line(recording: Recording, tape: Tape) -> Source | None:
    """Of several under the tape, the first: all have to leave it."""
    code = read_code(recording)
    calls = [line for line, _ in code.calls(".gradient", ".jacobian")]
    inside = sorted(_under(recording, tape, calls), key=lambda line: line.line)
    repeated = [line for line in calls if code.in_loop(line)]
    return inside[0] if inside else repeated[0] if len(repeated) == 1 else None


def _backward(recording: Recording) -> tuple[Source | None, int]:
    """The line that goes backward, and the bytes that its ops had alive at the peak of a detailed step."""
    best: tuple[Source | None, int] = (None, 0)
    for detail, line in _gradient_details(recording):
        size = sum(a.chunk_bytes for a in detail.at_peak if a.start and detail.sites[a.site].source == line)
        best = max(best, (line, size), key=lambda pair: pair[1])
    return best


def _gradient_details(recording: Recording) -> Iterator[tuple[Detail, Source]]:
    """Details with a way back in them, and the line that goes it. An update's reaches from one update to the next."""
    lines = dict.fromkeys(s.source for s in recording.steps if s.kind == "gradient" and s.source is not None)
    for detail in recording.details:
        step = recording.steps[detail.step] if detail.step < len(recording.steps) else None
        if step is not None and step.kind == "gradient" and step.source is not None:
            yield detail, step.source
        elif step is not None and step.kind == "update":
            yield from ((detail, line) for line in lines)


MOSTLY_UNUSED = 0.4
"""Of what a tape keeps: every tape lets something go that its gradient does not need, the last results above all."""


def records_unused(recording: Recording) -> Iterator[Finding]:
    """What a tape keeps and no gradient needs: for variables that get none, or ops that the target does not need."""
    let_go = max((_let_go_unused(d, line) for d, line in _gradient_details(recording)), default=0)
    for tape in recording.tapes:
        watches_more = tape.watches_variables and tape.watched > tape.used > 0
        size = round(max((_forward(d, line) for d, line in _gradient_details(recording)), default=0))
        unused = round(size * (1 - tape.used / tape.watched)) if watches_more else 0
        if unused >= let_go or let_go < MOSTLY_UNUSED * size:
            title = f"the tape watches {tape.watched} variables and is asked for the gradients of {tape.used}"
        else:
            title = f"the tape records {format_size(let_go)} that the gradient does not need"
            size = unused = let_go
        if tape.gradients and is_worth(recording, unused, NOTABLE):
            source = _not_differentiated(recording, tape) or tape.source
            yield Finding(
                "tape-records-unused", PROBLEM, title, size, source, read_code(recording).text(source),
                "compute what is not differentiated outside the tape, or open it with watch_accessed_variables=False "
                "and watch the variables that are trained", None, "", unused,
            )  # fmt: skip


def _not_differentiated(recording: Recording, tape: Tape) -> Source | None:
    """The one statement under the tape that calls something of the user's and nothing that gradients are asked for; of
    several, the one that is not for what is differentiated."""
    code = read_code(recording)
    under = code.statement(tape.source) if tape.source else None
    file = code.file(tape.source.file) if tape.source else None
    if file is None or tape.source is None or not isinstance(under, ast.With):
        return None
    bound = code.bound_by_with(tape.source)
    asked = [(line, call) for line, call in code.calls(f"{bound}.gradient") if len(call.args) > 1]
    if any(line.file == file.name and line.line in whole(under) for line, _ in asked):
        return None  # all of it is steps
    trained = {name for _, call in asked for name in _named(call.args[1])} - {"self"}
    live = [s for s in ast.walk(under) if isinstance(s, ast.Assign | ast.Expr) and file.is_live(s.lineno)]
    calling = [s for s in live if any(isinstance(n, ast.Call) and _is_users_own(n) for n in ast.walk(s))]
    beside = [s for s in calling if not trained & _named(s)]
    if len(beside) > 1:
        towards = _made_for({name for _, call in asked for name in _named(call.args[0])}, live)
        beside = [s for s in beside if s not in towards]
    return Source(file.name, beside[0].lineno) if asked and len(beside) == 1 and len(live) > 1 else None


def _made_for(names: set[str], statements: Sequence[ast.Assign | ast.Expr]) -> list[ast.stmt]:
    """Those of the statements that give these names their values, or give one of their own names its value."""
    found: list[ast.stmt] = []
    for statement in reversed(statements):
        if isinstance(statement, ast.Assign) and names & {name for to in statement.targets for name in _named(to)}:
            found.append(statement)
            names = names | _named(statement.value)
    return found


def _named(node: ast.AST) -> set[str]:
    return {dotted(part) for part in ast.walk(node) if isinstance(part, _NAMES)}


_NAMES = (ast.Name, ast.Attribute)


def _is_users_own(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Attribute) and call.func.attr in PUTS:
        return False
    return dotted(call.func).partition(".")[0] not in ("tf", "tensorflow", "keras", "np", "numpy", "ops", "float", "")


def _begins_back(detail: Detail, line: Source) -> int:
    """When the way back begins; 0 when it is not seen. An update on the same line, of the step before, is not it: what
    goes forward comes in between."""
    on_line = [a for a in detail.allocations if a.start and detail.sites[a.site].source == line]
    first = min([a.start for a in on_line if a.category == "gradients"] or [a.start for a in on_line], default=0)
    before = [a for a in detail.allocations if a.start < first and detail.sites[a.site].source not in (line, None)]
    forward = max((a.start for a in before), default=0)
    return min((a.start for a in on_line if a.start > forward), default=0)


def _let_go_unused(detail: Detail, line: Source) -> int:
    """Bytes freed between the last op forward and the first one back: a tape drops what it need not go through.

    TensorFlow's tape does this when `gradient` is called, before anything else.
    """
    back = _begins_back(detail, line)
    if not back:
        return 0
    last = max((a.start for a in detail.allocations if 0 < a.start < back), default=0)
    dropped = [
        a for a in detail.allocations
        if a.start and a.stop is not None and last < a.stop <= back and detail.sites[a.site].mode == "eager"
        and not a.temporary
    ]  # fmt: skip
    return sum(a.chunk_bytes for a in dropped)


def _forward(detail: Detail, line: Source) -> int:
    """What was made before going backward and was kept for it."""
    begun = _begins_back(detail, line)
    if not begun:
        return 0
    kept_for_it = [
        a for a in detail.allocations
        if a.start < begun and a.stop is not None and a.stop > begun and detail.sites[a.site].mode == "eager"
    ]  # fmt: skip
    return sum(a.chunk_bytes for a in kept_for_it)
