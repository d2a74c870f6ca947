"""Branches whose choice only the data tells, and those that a counter decides."""

from __future__ import annotations

from lowtide.ops import chosen_by_data
from lowtide.program import Op, Program
from tests.drafts import SCALAR, Draft


def arm() -> Program:
    draft = Draft()
    return draft.program(draft.op("kept", "Neg", draft.argument()))


def branching(draft: Draft, choice: int, given: int) -> Program:
    out = draft.value()
    draft.ops.append(Op("branch", "If", (choice, given), (out,), bodies=(0, 1)))
    return draft.program(out, functions=[arm(), arm()])


def test_a_branch_chosen_by_the_batch_depends_on_the_data() -> None:
    draft = Draft()
    x = draft.argument()
    choice = draft.op("any", "Any", x, shape=SCALAR)
    assert chosen_by_data(branching(draft, choice, x)) == {"branch"}


def test_a_branch_chosen_by_a_counter_does_not() -> None:
    draft = Draft()
    x, counter = draft.argument(), draft.variable("counter")
    read = draft.op("read", "ReadVariableOp", counter)
    draft.ops.append(Op("count", "AssignAddVariableOp", (counter, draft.op("one", "Const")), ()))
    assert chosen_by_data(branching(draft, draft.op("every", "Equal", read, read, shape=SCALAR), x)) == frozenset()


def test_a_variable_that_is_assigned_from_the_data_depends_on_it() -> None:
    draft = Draft()
    x, variable = draft.argument(), draft.variable("variable")
    draft.ops.append(Op("assign", "AssignSubVariableOp", (variable, x), ()))
    read = draft.op("read", "ReadVariableOp", variable)
    assert chosen_by_data(branching(draft, draft.op("any", "Any", read, shape=SCALAR), x)) == {"branch"}
