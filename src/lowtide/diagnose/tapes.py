"""Gradient tapes: kept, opened around too much, read while they record, recording what is never differentiated."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from lowtide.diagnose.code import read_code
from lowtide.diagnose.evidence import grown, is_worth, last_census, likeliest, line_that_keeps, per_step
from lowtide.diagnose.origins import with_functions_called
from lowtide.diagnose.recorded import gradient_details, is_users_own, made_of, not_differentiated
from lowtide.diagnose.script import File
from lowtide.diagnose.syntax import dotted, last_name, mentioned, whole
from lowtide.diagnose.types import PROBLEM, Finding
from lowtide.program import Source
from lowtide.record import Recording, Tape
from lowtide.record.views import step_count

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
        elif tape.persistent and tape.alive and tape.made > 1:
            yield from list(_kept_until_the_next(recording, tape)) or _persistent_for_one(recording, tape)


def _persistent_for_one(recording: Recording, tape: Tape) -> Iterator[Finding]:
    """A persistent tape that is asked once, and lives on, as any name does, until the next takes its name."""
    size = _held_by_nobody(recording)
    if tape.gradients == tape.made and is_worth(recording, size):
        yield Finding(
            "tapes-kept", PROBLEM, "a persistent tape is asked for one gradient only, and stays with what it saw",
            size, tape.source, read_code(recording).text(tape.source),
            "leave `persistent=True` out: the tape then lets everything go as it is asked; or `del` it", None, "", size,
        )  # fmt: skip


def _held_by_nobody(recording: Recording) -> int:
    """Bytes of tensors that no name holds: a tape is C++ inside, and its references do not show."""
    return sum(row.bytes for row in last_census(recording) if row.kind == "tensor" and not row.holder)


def _kept_until_the_next(recording: Recording, tape: Tape) -> Iterator[Finding]:
    """One persistent tape, kept on an object while the next one records: twice the activations at the peak."""
    code = read_code(recording)
    name = code.bound_by_with(tape.source) if tape.source else ""
    source = likeliest(code, code.keeps(name)) if name else None
    size = _held_by_nobody(recording)
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
        many = tape.most_steps - _own_gradients(recording, tape) >= MANY * _steps_a_turn(recording, tape)
        if many and _goes_round(recording, tape) and not _is_of_second_order(recording, tape):
            size = max(_held_by_tapes(recording), _rise(recording))
            if is_worth(recording, size):
                source = _runs_steps(recording, tape) or not_differentiated(recording, tape) or tape.source
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
    under, _ = _block(recording, tape)
    if under is None or any(isinstance(part, ast.For | ast.While) and _computes(part) for part in ast.walk(under)):
        return 0
    return tape.gradients_inside // max(1, tape.made)


def _goes_round(recording: Recording, tape: Tape) -> bool:
    """Whether anything under the tape may run again and again: a loop there or in what is called, or a caller's."""
    code = read_code(recording)
    under, file = _block(recording, tape)
    if file is None or under is None:
        return True  # nobody knows
    parts = [part for body in with_functions_called(file, under) for part in ast.walk(body)]
    called = {last_name(part.func) for part in parts if isinstance(part, ast.Call) and is_users_own(part)}
    elsewhere = [name for name in called if not file.function_named(name) and not code.assigns(name)]
    return bool(elsewhere) or any(isinstance(part, _ROUND) for part in parts)


_ROUND = (ast.For, ast.While, ast.comprehension, ast.Yield, ast.YieldFrom)


def _is_of_second_order(recording: Recording, tape: Tape) -> bool:
    """Whether the tape has to go back through the gradients that other tapes compute under it: those are of what was
    made of the very things that it is asked for, which were there before it."""
    code = read_code(recording)
    under, file = _block(recording, tape)
    if file is None or under is None or tape.source is None:
        return False
    bound = code.bound_by_with(tape.source)
    asked = {name for _, call in code.calls(f"{bound}.gradient") for one in call.args[1:2] for name in mentioned(one)}
    parts = [part for body in with_functions_called(file, under) for part in ast.walk(body)]
    there = {name for s in ast.walk(under) if isinstance(s, ast.Assign) for to in s.targets for name in mentioned(to)}
    of_these = made_of(asked, [part for part in parts if isinstance(part, ast.Assign)])
    inner = [part for part in parts if isinstance(part, ast.Call) and last_name(part.func) == "gradient"]
    others = [call.args[1] for call in inner if len(call.args) > 1 and dotted(call.func) != f"{bound}.gradient"]
    return not asked & there and any(of_these & mentioned(of) for of in others)


def _block(recording: Recording, tape: Tape) -> tuple[ast.With | None, File | None]:
    """The `with` that opens a tape, and the file that it is in."""
    code = read_code(recording)
    under = code.statement(tape.source) if tape.source else None
    return under if isinstance(under, ast.With) else None, code.file(tape.source.file) if tape.source else None


def _computes(loop: ast.For | ast.While) -> bool:
    """Whether the loop makes, each time, what a gradient in it is taken of."""
    parts = [part for statement in loop.body for part in ast.walk(statement)]
    made = {name for part in parts if isinstance(part, ast.Assign) for to in part.targets for name in mentioned(to)}
    targets = [
        part.args[0] for part in parts
        if isinstance(part, ast.Call) and last_name(part.func) in ("gradient", "jacobian") and part.args
    ]  # fmt: skip
    return not targets or any(isinstance(target, ast.Call) or made & mentioned(target) for target in targets)


def _steps_a_turn(recording: Recording, tape: Tape) -> int:
    """To eager code each call of a model, and each gradient, is a step, and one turn may have several: a GAN calls its
    models on many lines under one tape, an actor and its critic have a gradient each."""
    calls, gradients = (
        {step.source for step in recording.steps if step.kind == kind and step.source} for kind in ("call", "gradient")
    )
    return max(1, len(_under(recording, tape, calls) or calls), len(_under(recording, tape, gradients)))


def _under(recording: Recording, tape: Tape, lines: Iterable[Source]) -> set[Source]:
    """Those of the lines that are in the block of the tape's `with`."""
    under, file = _block(recording, tape)
    if file is None or under is None:
        return set()
    return {line for line in lines if line.file == file.name and line.line in whole(under)}


def _runs_steps(recording: Recording, tape: Tape) -> Source | None:
    """The one statement under the tape that calls the function whose steps it records; None where they are its own."""
    under, file = _block(recording, tape)
    if file is None or under is None:
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
    for detail, line in gradient_details(recording):
        size = sum(a.chunk_bytes for a in detail.at_peak if a.start and detail.sites[a.site].source == line)
        best = max(best, (line, size), key=lambda pair: pair[1])
    return best
