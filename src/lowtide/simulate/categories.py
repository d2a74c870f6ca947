"""What a buffer is for, told from the op that made it and the ops that read it."""

from __future__ import annotations

from lowtide.ops import Act, rule_of
from lowtide.program import Op, Program

_KEEPS = frozenset({Act.LIST_PUT, Act.LIST_SPLIT})


def op_categories(program: Program) -> list[str]:
    """For each op, the category of what it leaves behind.

    activations: made going forward, read going backward. gradients: made going backward, read by the update.
    temporaries: everything else that comes and goes within the step.
    """
    needed = _needed_going_backward(program)
    updated = {v for op in program.ops if op.phase == "update" for v in op.inputs}
    return [_category(op, needed, updated) for op in program.ops]


def _category(op: Op, needed: set[int], updated: set[int]) -> str:
    if op.kind == "Const":
        return "other"
    if op.phase == "forward" and any(value in needed for value in op.outputs):
        return "activations"
    if op.phase == "backward" and any(value in updated for value in op.outputs):
        return "gradients"
    return "temporaries"


def _needed_going_backward(program: Program) -> set[int]:
    """Values read by a backward op, through views and tensor lists too."""
    needed: set[int] = set()
    for op in reversed(program.ops):
        rule = rule_of(op.kind)
        act = rule.act if rule else Act.FRESH
        shares = act is Act.VIEW and any(value in needed for value in op.outputs)
        if op.phase == "backward" or shares or act in _KEEPS:
            needed.update(op.inputs)
    return needed
