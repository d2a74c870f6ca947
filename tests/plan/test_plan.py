"""A plan of a step: the game agrees with the simulator, copies keep the Program sound, budgets hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowtide.errors import Infeasible
from lowtide.plan import check, make_plan, problem_of, with_copies
from lowtide.plan.plan import batches_ahead, budget_for, bytes_ahead
from lowtide.program import Dim, Op, Program, Value, verify
from lowtide.simulate import simulate, tidy_order

WIDE = Value("float32", (Dim(0, 1), Dim(65536)))


def step_of_layers(depth: int) -> Program:
    """Forward through `depth` layers, backward again: each backward op reads what its forward op left."""
    ops = [Op("x", "Placeholder", (), (0,))]
    values = [WIDE]
    for layer in range(depth):
        ops.append(Op(f"forward_{layer}", "Softplus", (len(values) - 1,), (len(values),)))
        values.append(WIDE)
    made = list(range(depth + 1))
    for layer in reversed(range(depth)):
        inputs = (len(values) - 1, made[layer])
        ops.append(Op(f"gradient_{layer}", "SoftplusGrad", inputs, (len(values),), phase="backward"))
        values.append(WIDE)
    return Program(tuple(ops), tuple(values), inputs=(0,), outputs=(len(values) - 1,), batch=4)


def test_the_game_has_the_peak_that_the_simulator_finds() -> None:
    program = step_of_layers(12)
    order = tidy_order(program, 4)
    problem = problem_of(program, 4, order)
    assert check(problem, problem.base).peak == simulate(program, 4, order).peak


@pytest.mark.parametrize("share", [0.9, 0.75, 0.6])
def test_a_plan_stays_within_its_budget_and_its_program_is_sound(share: float) -> None:
    program = step_of_layers(16)
    before = simulate(program, 4, tidy_order(program, 4))
    budget = int(before.chunk_resident + share * (before.chunk_peak - before.chunk_resident))
    plan = make_plan(program, budget, seconds=3)
    verify(plan.program)
    assert plan.peak <= budget
    assert simulate(plan.program, 4).chunk_peak == plan.peak
    assert plan.slowdown >= 0
    assert sum(move.count for move in plan.moves if move.name == "recompute") == len(plan.schedule) - len(program.ops)


def test_a_budget_that_cannot_be_met_names_the_smallest_that_can() -> None:
    program = step_of_layers(16)
    with pytest.raises(Infeasible) as refusal:
        make_plan(program, 3 * WIDE.bytes(4), seconds=6)
    smallest = refusal.value.smallest_bytes
    assert f"{smallest / 2**20:.1f}"[:2] in str(refusal.value)
    assert make_plan(program, smallest, seconds=6).peak <= smallest


def test_a_plan_serves_a_step_of_the_same_ops_as_long_as_it_fits() -> None:
    """Of another length of sequences, say."""
    program = step_of_layers(16)
    before = simulate(program, 4, tidy_order(program, 4))
    budget = int(0.6 * before.chunk_peak)
    plan = make_plan(program, budget, seconds=3)
    shorter = replace(program, values=(replace(WIDE, shape=(Dim(0, 1), Dim(60000))),) * len(program.values))
    again = make_plan(shorter, budget, seconds=0, like=plan.pattern)
    assert again.pattern == plan.pattern
    assert again.peak < plan.peak
    assert again.slowdown == pytest.approx(plan.slowdown, rel=0.01)
    longer = replace(program, values=(replace(WIDE, shape=(Dim(0, 1), Dim(70000))),) * len(program.values))
    another = make_plan(longer, budget, seconds=3, like=plan.pattern)
    assert another.peak <= budget
    assert len(another.schedule) > len(plan.schedule)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_the_smallest_that_is_named_is_never_above_what_no_plan_needs(depth: int) -> None:
    program = step_of_layers(depth)
    unplanned = simulate(program, 4, tidy_order(program, 4)).chunk_peak
    with pytest.raises(Infeasible) as refusal:
        make_plan(program, WIDE.bytes(4), seconds=1)
    smallest = refusal.value.smallest_bytes
    assert WIDE.bytes(4) < smallest <= budget_for(program, 4, unplanned)
    assert make_plan(program, smallest, seconds=1).peak <= smallest


def test_small_batches_may_wait_in_numbers_and_large_ones_two_at_a_time() -> None:
    program = step_of_layers(2)
    one = sum(program.argument_bytes(4))
    assert batches_ahead(program, 4, 10 * one) == 2
    assert batches_ahead(program, 4, 250 * one) == 5
    assert batches_ahead(program, 4, 10_000 * one) == 8
    assert bytes_ahead(program, 4, 250 * one) == 5 * one


def test_a_copy_is_read_by_what_follows_it_and_the_original_by_what_came_before() -> None:
    program = step_of_layers(2)
    order = range(len(program.ops))
    again = with_copies(program, order, (0, 1, 2, 1, 3, 4))
    names = [op.name for op in again.ops]
    assert names == ["x", "forward_0", "forward_1", "forward_0/lowtide_again_1", "gradient_1", "gradient_0"]
    copy = again.ops[3].outputs[0]
    assert again.ops[2].inputs == (1,)
    assert copy in again.ops[4].inputs
    verify(again)


def looping(*after_the_loop: Op) -> tuple[Program, list[int]]:
    """A loop that reads a variable in each trip, what comes after it, and the order that this stands in."""
    small, handle = Value("int32", ()), Value("resource", ())
    read = (Op("i", "_Arg", (), (0,)), Op("w", "_Arg", (), (1,)), Op("read", "ReadVariableOp", (1,), (2,)))
    body = Program(read, (small, handle, WIDE), inputs=(0, 1), outputs=(0, 1))
    ops = [Op("i", "Const", (), (0,)), Op("w", "Placeholder", (), (1,)), Op("given", "Placeholder", (), (4,))]
    ops += [Op("loop", "While", (0, 1), (2, 3), bodies=(0, 0), trips=Dim(3)), *after_the_loop]
    values = (small, handle, small, handle, WIDE, WIDE)
    kept = tuple(range(4, len(ops)))
    program = Program(tuple(ops), values, inputs=(1, 4), outputs=(2,), keep=kept, functions=(body,), batch=4)
    return program, list(range(len(ops)))


def may_run_again(*after_the_loop: Op) -> bool:
    program, order = looping(*after_the_loop)
    return problem_of(program, 4, order).nodes[3].recomputable


ASSIGN = Op("assign", "AssignVariableOp", (1, 4), (), phase="update")


def test_a_loop_that_reads_a_variable_may_run_again_until_the_variable_changes() -> None:
    assert may_run_again()
    assert may_run_again(ASSIGN)
    program, order = looping(ASSIGN)
    assert problem_of(program, 4, order).nodes[4].ends == (1,), "nobody may read the variable after that"


def test_one_whose_variable_is_read_after_it_changed_may_not() -> None:
    """Then the change ends nothing: the loop would read what it was not meant to."""
    assert not may_run_again(ASSIGN, Op("read", "ReadVariableOp", (1,), (5,)))
    assert not may_run_again(ASSIGN, ASSIGN)
