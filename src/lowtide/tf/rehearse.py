"""What cannot be computed is tried out: the captured step is run at two tiny batches and its allocations are read.

For shapes that only the data tells and loops whose trip count is not a constant. Runs in the worker process, which ends
right after: the variables it changes are nobody's. A step that calls back into Python is not rehearsed, since that
would run the user's code.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, NamedTuple

import tensorflow as tf

from lowtide.ops import chosen_by_data
from lowtide.program import ITEM_BYTES, Dim, Note, Op, Program, Times, Value
from lowtide.tf import compat, profile
from lowtide.tf.capture import Step
from lowtide.tf.rewrite import as_function
from lowtide.tf.trace import batch_of, flat_tensors

_CALLS_PYTHON = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
_OPEN = "unknown"
"""Treatment of a note that still has to be settled."""

SMALL_BATCH = 4
"""The larger of the two batches that a step is tried out at; the other is half of it."""


class Heard(NamedTuple):
    """Allocations of one rehearsal by op: bytes of each, and the shape that it was for."""

    batch: int
    bytes: Mapping[str, list[int]]
    shapes: Mapping[str, list[tuple[int, ...] | None]]


def why_not_twice(program: Program) -> str:
    """Why running the step once more, variables put back after it, could still be noticed; empty when it could not.

    A process that ends right after the rehearsal need not ask.
    """
    kinds = {op.kind for op in program.ops}.union(*({op.kind for op in f.ops} for f in program.functions))
    if kinds & _CALLS_PYTHON:
        return "it calls back into Python, so it cannot be tried out"
    if drawn := sorted(kind for kind in kinds if kind.startswith(("IteratorGetNext", "QueueDequeue"))):
        return f"it draws data itself ({drawn[0]}), so it cannot be tried out"
    return "" if profile.counts_bytes() else "bytes are not counted on this device, so it cannot be tried out"


def needs_rehearsal(program: Program, choose_branches: bool = False) -> bool:
    """`choose_branches`: see `rehearse`."""
    return any(note.treatment == _OPEN for note in program.notes) or (choose_branches and bool(chosen_by_data(program)))


def rehearsed(step: Step, data: Any) -> Program:
    """What a prediction is made of: the step's Program, tried out where something about it could not be computed.

    The allocator's map is of before that, when it is as the script left it. Variables are changed: for a process that
    ends right after.
    """
    chunks = profile.chunks()
    program = step.program
    if needs_rehearsal(program, choose_branches=True):
        program = rehearse(step, flat_tensors(data), batch_of(data) or 1, choose_branches=True)
    return replace(program, chunks=chunks)


def rehearse(step: Step, arguments: Sequence[Any], batch: int, choose_branches: bool = False) -> Program:
    """The step's Program with its open questions answered by two small runs on rows of the flat `arguments`.

    `choose_branches`: a branch that depends on the data, and that was taken each time, is the one that is counted. A
    budget needs the bound instead: the branch with most bytes.
    """
    program = step.program
    if _calls_python(program):
        return unanswered(program, "it calls back into Python, and was not rehearsed")
    call = as_function(step, compat.functional_bodies(step.graph_def))
    few = sorted({min(batch, SMALL_BATCH // 2), min(batch, SMALL_BATCH)})
    try:
        try:
            tries = [_tried(call, arguments, batch, rows) for rows in few]
        except tf.errors.InvalidArgumentError:  # rows of one argument go with something else of another: ragged ones
            tries = [_tried(call, arguments, batch, batch)]
    except tf.errors.ResourceExhaustedError:
        return unanswered(program, "trying it out needs more memory than there is")
    except tf.errors.OpError as error:
        return unanswered(program, f"trying it out failed ({str(error).splitlines()[0][:200]})")
    heard = [_heard(rows, seen) for rows, seen in tries]
    answered = _answered(program, heard, chosen_by_data(program) if choose_branches else frozenset())
    rows, seen = tries[-1]
    return replace(answered, times=Times(rows, _of_ops(program, seen.seconds)))


def _tried(call: Any, arguments: Sequence[Any], batch: int, rows: int) -> tuple[int, profile.Profile]:
    small = [first_rows(argument, batch, rows) for argument in arguments]
    call(*small)  # the first call also makes constants
    return rows, profile.profiled(lambda: call(*small))


def _heard(rows: int, seen: profile.Profile) -> Heard:
    sizes: dict[str, list[int]] = {}
    shapes: dict[str, list[tuple[int, ...] | None]] = {}
    for event in seen.events:
        if event.requested > 0:
            sizes.setdefault(event.op, []).append(event.requested)
            shapes.setdefault(event.op, []).append(event.shape)
    return Heard(rows, sizes, shapes)


def _of_ops(program: Program, seconds: Mapping[str, float]) -> dict[str, float]:
    """Of the step itself: what ran inside a loop or a branch is in the time of that op."""
    return {op.name: seconds[op.name] for op in program.ops if op.name in seconds and not op.bodies}


def _calls_python(program: Program) -> bool:
    return any(op.kind in _CALLS_PYTHON for op in program.ops) or any(map(_calls_python, program.functions))


def first_rows(argument: Any, batch: int, rows: int) -> Any:
    leading = argument.shape.rank and argument.shape[0] == batch
    return tf.identity(argument[:rows]) if leading else argument


def _answered(program: Program, heard: Sequence[Heard], branches: Set[str]) -> Program:
    functions = tuple(_answered(function, heard, branches) for function in program.functions)
    values = list(program.values)
    ops = []
    notes = []
    for op in program.ops:
        for position, value in enumerate(op.outputs):
            if values[value].shape is None and values[value].dtype not in ("resource", "variant"):
                values[value] = _value(values[value], op, position, heard)
                size = values[value].bytes(program.batch)
                notes.append(Note(f"{op.kind} {op.name}", "rehearsed", size, "its shape depends on the data"))
        if op.kind.endswith("While") and op.trips is None:
            trips = _trips(program.functions[op.bodies[0]], heard)
            notes.append(Note(f"{op.kind} {op.name}", "rehearsed", 0, f"it went round {trips} times"))
            op = replace(op, trips=trips)
        if op.name in branches and (arm := _only_arm(op, functions, heard)) is not None:
            why = f"branch {arm + 1} of {len(op.bodies)} was taken each time; another has other bytes"
            notes.append(Note(f"{op.kind} {op.name}", "rehearsed", 0, why))
            op = replace(op, turns=(arm,))
            returned = functions[op.bodies[arm]]
            for value, inside in zip(op.outputs, returned.outputs, strict=True):
                values[value] = replace(values[value], shape=returned.values[inside].shape)
        ops.append(op)
    answered = {note.what for note in notes}
    kept = [note for note in program.notes if note.treatment != _OPEN and note.what not in answered]
    return replace(program, ops=tuple(ops), values=tuple(values), functions=functions, notes=(*kept, *notes))


def _only_arm(op: Op, functions: Sequence[Program], heard: Sequence[Heard]) -> int | None:
    """The branch that ran in every rehearsal: the one whose ops were heard, or the one that has none to hear."""
    audible = [{o.name for o in functions[body].ops if o.kind not in ("Const", "Placeholder")} for body in op.bodies]
    arms = [arm for arm, names in enumerate(audible) if any(names & one.bytes.keys() for one in heard)]
    if not arms:
        arms = [arm for arm, names in enumerate(audible) if not names]
    return arms[0] if len(arms) == 1 else None


def _value(value: Value, op: Op, position: int, heard: Sequence[Heard]) -> Value:
    """The shape it was allocated with, each side a line in the batch; or as many elements, where only bytes were told.
    None when it took over another's buffer."""
    counts, shapes = [], []
    for one in heard:
        sizes = one.bytes.get(op.name, [])
        elements = sizes[position] // ITEM_BYTES[value.dtype] if position < len(sizes) else 0
        shape = one.shapes[op.name][position] if elements else None
        counts.append((one.batch, elements))
        shapes.append(shape if shape is not None and math.prod(shape) == elements else None)
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes) or len({len(shape) for shape in known}) != 1 or not known[0]:
        return Value(value.dtype, (_line(counts),))
    first, *others = (list(zip([one.batch for one in heard], side, strict=True)) for side in zip(*known, strict=True))
    if len(heard) == 1:  # then only rows are taken to be more in a larger batch
        return Value(value.dtype, (_line(first), *(Dim(side[0][1]) for side in others)))
    return Value(value.dtype, tuple(map(_line, (first, *others))))


def _trips(condition: Program, heard: Sequence[Heard]) -> Dim:
    """The condition is evaluated once more than the body runs."""
    counts = []
    for one in heard:
        evaluated = Counter({op.name: len(one.bytes.get(op.name, ())) for op in condition.ops})
        counts.append((one.batch, max(0, max(evaluated.values(), default=1) - 1)))
    return _line(counts)


def _line(points: Sequence[tuple[int, int]]) -> Dim:
    """Through the two points, rounded up: a bound where the truth is not a line. Of one batch, so much for each row."""
    (first, low), (last, high) = points[0], points[-1]
    if first == last > 1:
        return Dim(0, -(-low // first))
    if first == last or high <= low:
        return Dim(max(low, high))
    slope = -(-(high - low) // (last - first))
    return Dim(max(0, high - slope * last), slope)


def unanswered(program: Program, why: str) -> Program:
    """Loops count as one trip and unknown shapes as nothing, and the notes say that this is a guess."""
    notes = tuple(replace(n, treatment="assumed", why=why) if n.treatment == _OPEN else n for n in program.notes)
    ops = tuple(
        replace(op, trips=Dim(1)) if op.kind.endswith("While") and op.trips is None else op for op in program.ops
    )
    functions = tuple(unanswered(function, why) for function in program.functions)
    return replace(program, ops=ops, functions=functions, notes=notes)
