"""The rules every Program keeps, as a table of checks. A pass that breaks one is found here, not three rooms later."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lowtide.errors import MalformedProgram
from lowtide.program.types import Op, Program


def verify(program: Program) -> None:
    """Raise MalformedProgram with the first broken rule; bodies are checked too."""
    for rule in _RULES:
        for problem in rule(program):
            raise MalformedProgram(f"program {program.name or '(unnamed)'}: {problem}")
    for function in program.functions:
        verify(function)


def _values_exist(program: Program) -> Iterator[str]:
    count = len(program.values)
    for op in program.ops:
        for value in (*op.inputs, *op.outputs):
            if not 0 <= value < count:
                yield f"op {op.name!r} names value {value} of {count}"
    for value in (*program.inputs, *program.outputs):
        if not 0 <= value < count:
            yield f"input or output {value} of {count} values"
    for resident in program.residents:
        if not 0 <= resident.value < count:
            yield f"resident {resident.name!r} is value {resident.value} of {count}"


def _made_once(program: Program) -> Iterator[str]:
    made: dict[int, Op] = {}
    for op in program.ops:
        for value in op.outputs:
            if value in made:
                yield f"value {value} is made by {made[value].name!r} and again by {op.name!r}"
            made[value] = op


def _made_before_read(program: Program) -> Iterator[str]:
    made: set[int] = set()
    for op in program.ops:
        for value in op.inputs:
            if value not in made:
                yield f"op {op.name!r} reads value {value} before it is made"
        made.update(op.outputs)
    for value in (*program.inputs, *program.outputs):
        if value not in made:
            yield f"value {value} is an input or output and no op makes it"


def _follows_earlier_ops(program: Program) -> Iterator[str]:
    for index, op in enumerate(program.ops):
        for before in op.after:
            if not 0 <= before < index:
                yield f"op {op.name!r} comes after op {before}, which does not come before it"
    for index in program.keep:
        if not 0 <= index < len(program.ops):
            yield f"keeps op {index} of {len(program.ops)}"


def _bodies_exist(program: Program) -> Iterator[str]:
    for op in program.ops:
        for body in op.bodies:
            if not 0 <= body < len(program.functions):
                yield f"op {op.name!r} runs body {body} of {len(program.functions)}"
        for arm in op.turns:
            if not 0 <= arm < len(op.bodies):
                yield f"op {op.name!r} takes branch {arm} of {len(op.bodies)} in turn"


def _names_are_unique(program: Program) -> Iterator[str]:
    seen: set[str] = set()
    for op in program.ops:
        if op.name in seen:
            yield f"two ops are called {op.name!r}"
        seen.add(op.name)


_RULES: tuple[Callable[[Program], Iterator[str]], ...] = (
    _values_exist,
    _made_once,
    _made_before_read,
    _follows_earlier_ops,
    _bodies_exist,
    _names_are_unique,
)
