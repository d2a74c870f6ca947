"""The order Lowtide runs: the same ops, each after what it needs, what frees memory first."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.program import Dim, Program
from lowtide.simulate import simulate, tidy_order
from tests.drafts import Draft, chain, everything, kept_for_backward, random_programs


def respects_edges(program: Program, order: list[int]) -> bool:
    position = {index: place for place, index in enumerate(order)}
    maker = {value: index for index, op in enumerate(program.ops) for value in op.outputs}
    return all(
        position[before] < position[index]
        for index, op in enumerate(program.ops)
        for before in (*op.after, *(maker[value] for value in op.inputs))
    )


@given(random_programs(most_ops=60), st.integers(1, 64))
@settings(max_examples=150, deadline=None)
def test_every_op_runs_once_after_what_it_needs(program: Program, batch: int) -> None:
    order = tidy_order(program, batch)
    assert sorted(order) == list(range(len(program.ops)))
    assert respects_edges(program, order)


@given(random_programs())
@settings(max_examples=30, deadline=None)
def test_the_same_program_gets_the_same_order(program: Program) -> None:
    assert tidy_order(program, 4) == tidy_order(program, 4)


def test_a_chain_has_one_order() -> None:
    assert tidy_order(chain(20), 4) == list(range(21))


def test_a_program_with_bodies_is_ordered_too() -> None:
    assert sorted(tidy_order(everything(), 4)) == list(range(6))


def test_a_gradient_that_is_ready_is_spent_before_the_next_is_made() -> None:
    """Traced as frameworks do it: all gradients, then all updates."""
    draft = Draft()
    weights = (Dim(512), Dim(512))
    handles = [draft.variable(f"w{n}", weights) for n in range(8)]
    x = draft.argument()
    gradients = [draft.op(f"g{n}", "MatMul", x, x, shape=weights, phase="backward") for n in range(8)]
    for handle, gradient in zip(handles, gradients, strict=True):
        draft.effect(f"update{handle}", "AssignSubVariableOp", handle, gradient)
    program = draft.program()
    gradient = 512 * 512 * 4
    as_traced, tidy = simulate(program, 4), simulate(program, 4, tidy_order(program, 4))
    assert as_traced.peak - as_traced.resident >= 8 * gradient
    assert gradient <= tidy.peak - tidy.resident < 2 * gradient


def test_a_training_step_peaks_no_higher_than_as_traced() -> None:
    for layers in (1, 2, 5, 12):
        program = kept_for_backward(layers)
        assert simulate(program, 64, tidy_order(program, 64)).peak <= simulate(program, 64).peak


def test_weight_decay_does_not_copy_every_weight_before_the_first_is_used() -> None:
    """It needs no gradient, so it could begin at once; its result has to wait until nobody looks at the weight."""
    draft = Draft()
    weights = (Dim(512), Dim(512))
    handles = [draft.variable(f"w{n}", weights) for n in range(8)]
    used = [draft.op(f"read{n}", "ReadVariableOp", handle, shape=weights) for n, handle in enumerate(handles)]
    x = draft.argument()
    for n, weight in enumerate(used):
        x = draft.op(f"use{n}", "MatMul", x, weight)
    for n, handle in enumerate(handles):
        again = draft.op(f"again{n}", "ReadVariableOp", handle, shape=weights, phase="update")
        decay = draft.op(f"decay{n}", "MatMul", again, again, shape=weights, phase="update")
        draft.effect(f"update{n}", "AssignSubVariableOp", handle, decay)
    program = draft.program(x)
    weight = 512 * 512 * 4
    tidy = simulate(program, 4, tidy_order(program, 4))
    assert tidy.peak - tidy.resident < 3 * weight
