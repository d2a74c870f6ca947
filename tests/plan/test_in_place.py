"""Assignments that write into the variable's own memory: which ones, and that the Program stays sound."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowtide.plan.in_place import SETTLE, WRITE, writer_of, written_in_place
from lowtide.program import Dim, Op, Program, Resident, Shape, Value, verify
from lowtide.simulate import simulate

ROWS = (Dim(64), Dim(64))


def step_that_assigns(
    read: Shape | None = ROWS, value: Shape | None = ROWS, dtype: str = "float32", resident: int = 64 * 64 * 4
) -> Program:
    """A variable is read, something is computed from it and assigned, and an op waits for that."""
    values = (Value("resource", ()), Value(dtype, read), Value(dtype, value))
    ops = (
        Op("v", "Placeholder", (), (0,)),
        Op("read", "ReadVariableOp", (0,), (1,)),
        Op("new", "Softplus", (1,), (2,)),
        Op("assign", "AssignVariableOp", (0, 2), (), source=None, phase="update"),
        Op("done", "NoOp", (), (), after=(3,)),
    )
    return Program(ops, values, (0,), (), keep=(3, 4), residents=(Resident("v", "parameters", resident, 0),))


def test_an_assignment_becomes_a_write_and_what_waited_for_it_waits_for_both() -> None:
    program = written_in_place(step_that_assigns())
    verify(program)
    by_name = {op.name: op for op in program.ops}
    place = {op.name: index for index, op in enumerate(program.ops)}
    writer = by_name[writer_of("assign")]
    assert (writer.kind, writer.inputs[0], writer.inputs[-1]) == (WRITE, 0, 2)
    assert (by_name["assign"].kind, by_name["assign"].after) == (SETTLE, (place[writer.name],))
    assert by_name["done"].after == (place["assign"],)
    assert program.keep == (place["assign"], place["done"])


def test_the_variable_stays_where_it_is_and_needs_no_more_bytes_than_before() -> None:
    before, after = step_that_assigns(), written_in_place(step_that_assigns())
    moved, stayed = simulate(before, 1), simulate(after, 1)
    assert next(b.stop for b in moved.buffers if b.category == "parameters") is not None, "let go of for the new value"
    assert [b.stop for b in stayed.buffers if b.category == "parameters"] == [None]
    bounds = 2 * 4  # two constants of one number
    walls = lambda timeline: sum(count for _, count in timeline.preparation.small_change)  # noqa: E731
    assert stayed.peak - walls(stayed) <= moved.peak - walls(moved) + bounds


@pytest.mark.parametrize(
    "other",
    [
        step_that_assigns(resident=512),
        step_that_assigns(read=(Dim(4096),)),
        step_that_assigns(value=None),
        step_that_assigns(read=(Dim(0, 4), Dim(64)), value=(Dim(0, 4), Dim(64))),
        step_that_assigns(dtype="int32"),
        replace(step_that_assigns(), residents=()),
    ],
    ids=["small", "of another shape", "of unknown shape", "as large as the batch", "whole numbers", "not a variable"],
)
def test_any_other_assignment_is_left_as_it_is(other: Program) -> None:
    assert written_in_place(other) is other


def test_an_assignment_in_a_branch_is_written_in_place_too() -> None:
    """The branch does not read the variable: what it is, is known from outside."""
    values = (Value("resource", ()), Value("float32", ROWS))
    arm = Program(
        (
            Op("v", "Placeholder", (), (0,)),
            Op("zeros", "Const", (), (1,)),
            Op("assign", "AssignVariableOp", (0, 1), ()),
        ),
        values, (0,), (), keep=(2,),
    )  # fmt: skip
    step = step_that_assigns()
    ops = (*step.ops[:3], Op("choose", "If", (2, 0), (), bodies=(0, 0)))
    program = written_in_place(replace(step, ops=ops, keep=(3,), functions=(arm,)))
    verify(program)
    (body,) = program.functions
    assert [op.kind for op in body.ops if op.name.startswith("assign")] == [WRITE, SETTLE]
    assert body.keep == (len(body.ops) - 1,)
    assert program.ops == ops
