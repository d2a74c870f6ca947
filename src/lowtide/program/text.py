"""A Program as stable text: one op a line, for people, diffs and snapshot tests."""

from __future__ import annotations

from collections.abc import Iterator

from lowtide.program.types import Op, Program, Value


def to_text(program: Program) -> str:
    """One line an op: outputs with types, kind, inputs, then what else is known. Bodies follow, indented."""
    return "\n".join(_lines(program, "")) + "\n"


def _lines(program: Program, indent: str) -> Iterator[str]:
    yield f"{indent}program {program.name or '-'} batch {program.batch}"
    for resident in program.residents:
        yield f"{indent}  resident {resident.name}: {resident.bytes} bytes, {resident.category}"
    for op in program.ops:
        yield f"{indent}  {_line(op, program)}"
    yield f"{indent}  return {_values(program.outputs)}"
    for index, function in enumerate(program.functions):
        yield f"{indent}  body {index}:"
        yield from _lines(function, indent + "    ")


def _line(op: Op, program: Program) -> str:
    made = ", ".join(f"%{value}: {_type(program.values[value])}" for value in op.outputs) or "()"
    parts = [f"{made} = {op.kind}({_values(op.inputs)})", f"# {op.phase} {op.name}"]
    if op.bodies:
        parts.insert(1, f"bodies {list(op.bodies)} trips {op.trips if op.trips is not None else '?'}")
    if op.after:
        parts.insert(1, f"after {list(op.after)}")
    return " ".join(parts)


def _values(values: tuple[int, ...]) -> str:
    return ", ".join(f"%{value}" for value in values)


def _type(value: Value) -> str:
    shape = "?" if value.shape is None else ",".join(str(dim) for dim in value.shape)
    return f"{value.dtype}[{shape}]"
