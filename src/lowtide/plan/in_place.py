"""Variables that keep their place: an assignment writes into the variable's own memory.

`AssignVariableOp` copies nothing: the variable takes over the memory of its new value and lets go of its own. So an
optimizer that assigns (momentum, Adafactor, moving averages) moves its variables about at every step, and free space
falls into other pieces each time, for as long as training lasts: what was proven for a few steps says little about
the thousandth. A plan has such an assignment done as `variable[:] = value`, which needs as many bytes and leaves the
variable where it was. TensorFlow would copy a variable that was once written to in part whenever it is read; a second
op turns that off again.
"""

from __future__ import annotations

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
    """The same step, with the assignments of its large variables as two ops each."""
    assigned = _assigned(program)
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


def _assigned(program: Program) -> set[int]:
    """Assignments of a whole large variable by a value of the shape that it has."""
    large = {resident.value for resident in program.residents if resident.bytes >= SMALLEST}
    read_as = {op.inputs[0]: program.values[op.outputs[0]] for op in program.ops if op.kind == "ReadVariableOp"}
    return {
        index
        for index, op in enumerate(program.ops)
        if op.kind == "AssignVariableOp" and op.inputs[0] in large & read_as.keys()
        if program.values[op.inputs[1]] == read_as[op.inputs[0]]
        if _is_settled(program.values[op.inputs[1]])
    }


def _is_settled(value: Value) -> bool:
    """Of one shape whatever the batch, and of a type that every device can write in place."""
    return value.dtype in _FLOATS and bool(value.shape) and not any(dim.per_sample for dim in value.shape or ())
