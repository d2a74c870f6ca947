"""Which branch of a conditional a step takes, as far as the graph tells.

What a predicate will be is not known before the run, so in general the branch with most bytes counts: a bound. But some
conditionals are guards: they ask whether anything has become NaN, infinite or exactly zero, and as long as training
goes well the answer does not change. Keras divides a sparse gradient by a dense one under such a guard, and applies
scaled gradients under another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from lowtide.ops import BRANCHES, sure_arm
from lowtide.program import Op, Program


def is_branch(op: Op) -> bool:
    return op.kind in BRANCHES and bool(op.bodies)


def taken_branch(program: Program, op: Op, batch: int, largest: bool = True) -> int:
    """The index in `program.functions` of the usual branch, or of the largest (the smallest) where none is usual.

    A branch of the forward pass and that of its gradient are chosen by the same value, so they go together.
    """
    if (sure := sure_arm(op)) is not None:
        return op.bodies[sure]
    if op.kind.endswith("If"):
        maker = {value: maker for maker in program.ops for value in maker.outputs}
        usual = _usual(op.inputs[0], program, maker)
        if usual is not None:
            return op.bodies[0 if usual else 1]
    together = [
        other.bodies
        for other in program.ops
        if is_branch(other) and other.inputs[0] == op.inputs[0] and len(other.bodies) == len(op.bodies)
    ]
    choose = max if largest else min
    arms = range(len(op.bodies))
    return op.bodies[choose(arms, key=lambda arm: sum(_bytes(program, b[arm], batch) for b in together))]


def has_choice(program: Program, batch: int) -> bool:
    """Whether some branch of the step itself is known only when it runs."""
    return any(
        taken_branch(program, op, batch) != taken_branch(program, op, batch, largest=False)
        for op in program.ops
        if is_branch(op)
    )


def _bytes(program: Program, body: int, batch: int) -> int:
    return sum(value.bytes(batch) for value in program.functions[body].values)


def _usual(value: int, program: Program, maker: Mapping[int, Op]) -> bool | None:
    """What a predicate is while all numbers are finite and none exactly zero; None when that does not decide it."""
    op = maker.get(value)
    if op is None:
        return None
    if op.kind in _TESTS:
        return _TESTS[op.kind]
    if op.kind in _COMPARES and program.values[op.inputs[0]].dtype in _FLOATS:
        constant = any(maker[v].kind == "Const" for v in op.inputs if v in maker)
        return _COMPARES[op.kind] if constant else None
    if op.kind in _COMBINES:
        inputs = op.inputs if op.kind.startswith("Logical") else op.inputs[:1]
        return _COMBINES[op.kind]([_usual(v, program, maker) for v in inputs])
    return None


_TESTS = {"IsNan": False, "IsInf": False, "IsFinite": True}
_COMPARES = {"Equal": False, "NotEqual": True}
_FLOATS = frozenset({"half", "float16", "bfloat16", "float32", "float64"})


def _all(known: Sequence[bool | None]) -> bool | None:
    return False if False in known else None if None in known else True


def _any(known: Sequence[bool | None]) -> bool | None:
    return True if True in known else None if None in known else False


_COMBINES: dict[str, Callable[[Sequence[bool | None]], bool | None]] = {
    "Any": _any, "All": _all, "LogicalAnd": _all, "LogicalOr": _any,
    "LogicalNot": lambda known: None if known[0] is None else not known[0],
    "Identity": _any, "Reshape": _any, "Squeeze": _any,
}  # fmt: skip
