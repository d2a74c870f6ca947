"""What a tape records and no gradient needs: for variables that get none, for what could be computed outside it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from lowtide.diagnose.code import PUTS, Code, read_code
from lowtide.diagnose.evidence import is_worth
from lowtide.diagnose.syntax import dotted, mentioned, whole
from lowtide.diagnose.types import PROBLEM, Finding
from lowtide.program import Source
from lowtide.record import Detail, Recording, Tape
from lowtide.units import format_size

NOTABLE = 0.03
MOSTLY_UNUSED = 0.4
"""Of what a tape keeps: every tape lets something go that its gradient does not need, the last results above all."""


def records_unused(recording: Recording) -> Iterator[Finding]:
    """What a tape keeps and no gradient needs: for variables that get none, or ops that the target does not need."""
    for tape in recording.tapes:
        details = list(_details_of(recording, tape))
        beside = not_differentiated(recording, tape)
        modes = ("eager", "graph") if beside else ("eager",)  # a tf.function that is differentiated keeps what it must
        let_go = max((_let_go_unused(d, line, modes) for d, line in details), default=0)
        watches_more = tape.watches_variables and tape.watched > tape.used > 0
        size = round(max((_forward(d, line, modes) for d, line in details), default=0))
        unused = round(size * (1 - tape.used / tape.watched)) if watches_more else 0
        if unused >= let_go or let_go < MOSTLY_UNUSED * size:
            title = f"the tape watches {tape.watched} variables and is asked for the gradients of {tape.used}"
        else:
            title = f"the tape records {format_size(let_go)} that the gradient does not need"
            size = unused = let_go
        if tape.gradients and is_worth(recording, unused, NOTABLE):
            source = beside or tape.source
            yield Finding(
                "tape-records-unused", PROBLEM, title, size, source, read_code(recording).text(source),
                "compute what is not differentiated outside the tape, or open it with watch_accessed_variables=False "
                "and watch the variables that are trained", None, "", unused,
            )  # fmt: skip


def not_differentiated(recording: Recording, tape: Tape) -> Source | None:
    """The one statement under the tape that calls something of the user's, nothing that gradients are asked for, and
    needs nothing that was made of these: it can be moved out. Of several, the one that is not for what is
    differentiated. A `yield` comes first: whatever its caller does meanwhile is recorded."""
    code = read_code(recording)
    under = code.statement(tape.source) if tape.source else None
    file = code.file(tape.source.file) if tape.source else None
    if file is None or tape.source is None or not isinstance(under, ast.With):
        return None
    for part in ast.walk(under):
        if isinstance(part, ast.Yield | ast.YieldFrom) and file.is_live(part.lineno):
            return Source(file.name, part.lineno)
    bound = code.bound_by_with(tape.source)
    asked = [(line, call) for line, call in code.calls(f"{bound}.gradient") if len(call.args) > 1]
    if any(line.file == file.name and line.line in whole(under) for line, _ in asked):
        return None  # all of it is steps
    live = [s for s in ast.walk(under) if isinstance(s, ast.Assign | ast.Expr) and file.is_live(s.lineno)]
    trained = made_of(_trained(code, file.name, asked), live)
    calling = [s for s in live if any(isinstance(n, ast.Call) and is_users_own(n) for n in ast.walk(s))]
    beside = [s for s in calling if not trained & mentioned(s)]  # what needs these can be left out by the tape only
    if len(beside) > 1:
        towards = _made_for({name for _, call in asked for name in mentioned(call.args[0])}, live)
        beside = [s for s in beside if s not in towards]
    return Source(file.name, beside[0].lineno) if asked and len(beside) == 1 and len(live) > 1 else None


def _trained(code: Code, file: str, asked: Sequence[tuple[Source, ast.Call]]) -> set[str]:
    """What gradients are asked for, by name; and what such a name was given."""
    names = {name for _, call in asked for name in mentioned(call.args[1])}
    given = [code.statement(line) for name in names for line in code.assigns(name, file)]
    values = [s.value for s in given if isinstance(s, ast.Assign)]
    plain = [value for value in values if isinstance(value, ast.Name | ast.Attribute | ast.BinOp)]
    return names | {name for value in plain for name in mentioned(value)}


def made_of(names: set[str], statements: Sequence[ast.Assign | ast.Expr]) -> set[str]:
    """These names, and those that the statements give values made of them, however often they are gone through."""
    found, before = names - {"self"}, set[str]()
    while found != before:
        before = found
        made = [s for s in statements if isinstance(s, ast.Assign) and found & mentioned(s.value)]
        found = found | {name for s in made for to in s.targets for name in mentioned(to)} - {"self"}
    return found


def _made_for(names: set[str], statements: Sequence[ast.Assign | ast.Expr]) -> list[ast.stmt]:
    """Those of the statements that give these names their values, or give one of their own names its value."""
    found: list[ast.stmt] = []
    for statement in reversed(statements):
        if isinstance(statement, ast.Assign) and any(names & mentioned(to) for to in statement.targets):
            found.append(statement)
            names = names | mentioned(statement.value)
    return found


def is_users_own(call: ast.Call) -> bool:
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


def _let_go_unused(detail: Detail, line: Source, modes: Sequence[str]) -> int:
    """Bytes freed between the last op forward and the first one back: a tape drops what it need not go through.

    TensorFlow's tape does this when `gradient` is called, before anything else.
    """
    back = _begins_back(detail, line)
    if not back:
        return 0
    last = max((a.start for a in detail.allocations if 0 < a.start < back), default=0)
    dropped = [
        a for a in detail.allocations
        if a.start and a.stop is not None and last < a.stop <= back and not a.temporary
        and detail.sites[a.site].mode in modes
    ]  # fmt: skip
    return sum(a.chunk_bytes for a in dropped)


def _forward(detail: Detail, line: Source, modes: Sequence[str]) -> int:
    """What was made before going backward and was kept for it."""
    begun = _begins_back(detail, line)
    if not begun:
        return 0
    kept_for_it = [
        a for a in detail.allocations
        if a.start < begun and a.stop is not None and a.stop > begun
        and detail.sites[a.site].mode in (modes if a.start else ("eager",))
    ]  # fmt: skip
    return sum(a.chunk_bytes for a in kept_for_it)


def _details_of(recording: Recording, tape: Tape) -> Iterator[tuple[Detail, Source]]:
    """Those of `gradient_details` whose line asks this very tape, where the code tells."""
    code = read_code(recording)
    bound = code.bound_by_with(tape.source) if tape.source else ""
    asked = {line for line, _ in code.calls(f"{bound}.gradient", f"{bound}.jacobian")} if bound else set[Source]()
    found = list(gradient_details(recording))
    own = [(detail, line) for detail, line in found if line in asked]
    yield from own if own or any(line in asked for line in _gradient_lines(recording)) else found


def _gradient_lines(recording: Recording) -> list[Source]:
    """Where gradients were asked for, each once."""
    return list(dict.fromkeys(s.source for s in recording.steps if s.kind == "gradient" and s.source is not None))


def gradient_details(recording: Recording) -> Iterator[tuple[Detail, Source]]:
    """Details with a way back in them, and the line that goes it. An update's reaches from one update to the next."""
    lines = _gradient_lines(recording)
    for detail in recording.details:
        step = recording.steps[detail.step] if detail.step < len(recording.steps) else None
        if step is not None and step.kind == "gradient" and step.source is not None:
            yield detail, step.source
        elif step is not None and step.kind == "update":
            yield from ((detail, line) for line in lines)
