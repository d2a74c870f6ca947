"""Variables that keep their place: an assignment writes into the variable's own memory.

`AssignVariableOp` copies nothing: the variable takes over the memory of its new value and lets go of its own. So an
optimizer that assigns (momentum, Adafactor, moving averages) moves its variables about at every step, and free space
falls into other pieces each time, for as long as training lasts: what was proven for a few steps says little about
the thousandth. A plan has such an assignment done as `variable[:] = value`, which needs as many bytes and leaves the
variable where it was. TensorFlow would copy a variable that was once written to in part whenever it is read; a second
op turns that off again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lowtide.program import Dim, Op, Program, Value

WRITE, SETTLE = "ResourceStridedSliceAssign", "DisableCopyOnRead"
SCOPE = "lowtide_in_place"
"""Scope of the names of what is added. The op that settles has the name of the assignment that it stands for."""
BEGIN, STRIDE = f"{SCOPE}/begin", f"{SCOPE}/stride"
"""Constants: where the part that is written begins and ends, and every how many."""
SMALLEST = 1024  # bytes of a variable that matters
_FLOATS = frozenset({"float32", "float64", "float16", "half", "bfloat16"})


def written_in_place(program: Program) -> Program:
    """The same step, with the assignments of its large variables as two ops each, those in branches and loops too."""
    return _rewritten(program, {r.value: None for r in program.residents if r.bytes >= SMALLEST})


def _rewritten(program: Program, large: Mapping[int, Value | None]) -> Program:
    """A step, or a part of one that is given handles of large variables: what each is when read, if that is known."""
    reads = {op.inputs[0]: program.values[op.outputs[0]] for op in program.ops if op.kind == "ReadVariableOp"}
    known = {handle: reads.get(handle, value) for handle, value in large.items()}
    functions = list(program.functions)
    for op in program.ops:
        for number in op.bodies:
            body = functions[number]
            given = zip(body.inputs, op.inputs[len(op.inputs) - len(body.inputs) :], strict=True)
            functions[number] = _rewritten(body, {inside: known[value] for inside, value in given if value in known})
    if tuple(functions) != program.functions:
        program = replace(program, functions=tuple(functions))
    return _as_two_ops(program, known)


def _as_two_ops(program: Program, known: Mapping[int, Value | None]) -> Program:
    assigned = _assigned(program, known)
    if not assigned:
        return program
    begin, stride = len(program.values), len(program.values) + 1
    ops = [Op(BEGIN, "Const", (), (begin,)), Op(STRIDE, "Const", (), (stride,))]
    place: list[int] = []
    for index, op in enumerate(program.ops):
        op = replace(op, after=tuple(place[before] for before in op.after))
        if index in assigned:
            handle, value = op.inputs
            inputs = (handle, begin, begin, stride, value)
            ops.append(replace(op, name=writer_of(op.name), kind=WRITE, inputs=inputs))
            op = replace(op, kind=SETTLE, inputs=(handle,), after=(len(ops) - 1,))
        place.append(len(ops))
        ops.append(op)
    bounds = Value("int32", (Dim(1),))
    keep = tuple(place[index] for index in program.keep)
    return replace(program, ops=tuple(ops), values=(*program.values, bounds, bounds), keep=keep)


def writer_of(assignment: str) -> str:
    """The name of the op that does the writing of an assignment of this name."""
    return f"{assignment}/{SCOPE}"


def _assigned(program: Program, known: Mapping[int, Value | None]) -> set[int]:
    """Assignments of a whole large variable by a value of the shape that it has."""
    return {
        index
        for index, op in enumerate(program.ops)
        if op.kind == "AssignVariableOp" and program.values[op.inputs[1]] == known.get(op.inputs[0])
        if _is_settled(program.values[op.inputs[1]])
    }


def _is_settled(value: Value) -> bool:
    """Of one shape whatever the batch, and of a type that every device can write in place."""
    return value.dtype in _FLOATS and bool(value.shape) and not any(dim.per_sample for dim in value.shape or ())
