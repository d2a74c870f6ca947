"""What depends on the data: the branches whose choice no arithmetic foretells.

A value depends on the data when one it is computed from does; a variable does when it is assigned such a value. A
counter does not, however often it is read: a branch taken every fourth step will be taken.
"""

from __future__ import annotations

from collections.abc import Iterable

from lowtide.ops.table import BRANCHES, LOOPS, LOWERING_ATTRIBUTE, Act, rule_of
from lowtide.program import Op, Program


def chosen_by_data(program: Program) -> frozenset[str]:
    """Names of the branching ops, in bodies too, whose branch depends on the batch or on weights trained with it."""
    found: set[str] = set()
    given = {v for v in program.inputs if program.values[v].dtype != "resource"}
    _spread(program, given, found)
    return frozenset(found)


def _spread(program: Program, touched: Iterable[int], found: set[str]) -> set[int]:
    """All values that depend on `touched`, resource handles of variables assigned from them included."""
    known = set(touched)
    while True:
        before = len(known)
        for op in program.ops:
            if op.bodies:
                _through_bodies(program, op, known, found)
            elif not known.isdisjoint(op.inputs):
                known.update(op.outputs)
                rule = rule_of(op.kind)
                if rule is not None and rule.act in (Act.ASSIGN, Act.UPDATE):
                    known.update(v for v in op.inputs if program.values[v].dtype == "resource")
        if len(known) == before:
            return known


def _through_bodies(program: Program, op: Op, known: set[int], found: set[str]) -> None:
    """What goes into each body and what comes out of it; the choice itself touches every result."""
    if is_branching(op) and op.inputs[0] in known:
        found.add(op.name)
        known.update(op.outputs)
    for index in op.bodies:
        body = program.functions[index]
        outside = op.inputs[len(op.inputs) - len(body.inputs) :]
        inside = dict(zip(body.inputs, outside, strict=True))
        touched = _spread(body, {v for v, outer in inside.items() if outer in known}, found)
        known.update(outer for v, outer in inside.items() if v in touched and program.values[outer].dtype == "resource")
        for position, result in enumerate(body.outputs):
            if result in touched and position < len(op.outputs):
                known.add(op.outputs[position])


def is_lowered(op: Op) -> bool:
    """A loop or a choice of branches whose ops are among those outside it, see `LOWERING_ATTRIBUTE`."""
    return (op.trips is not None or op.kind in BRANCHES) and op.attrs.get(LOWERING_ATTRIBUTE) is True


def is_branching(op: Op) -> bool:
    """Whether it may run another body in another step."""
    return len(op.bodies) > 1 and op.kind not in LOOPS and sure_arm(op) is None


def sure_arm(op: Op) -> int | None:
    """Which of its bodies an op that is no loop runs in every step; None where that changes, or is not known."""
    return 0 if len(op.bodies) == 1 else op.turns[0] if len(set(op.turns)) == 1 else None
