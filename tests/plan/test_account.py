"""What a plan says it did: early updates counted apart, and none where a norm over all gradients forbids them."""

from __future__ import annotations

from dataclasses import replace

from lowtide.plan import make_plan, plan_curve
from lowtide.plan.account import Account, early_updates, updates_last
from lowtide.program import Dim, Program, verify
from lowtide.simulate import simulate, tidy_order
from tests.drafts import SCALAR, Draft

WEIGHT = (Dim(256), Dim(256))


def step(layers: int, clipped: bool) -> Program:
    """Forward, backward and updates, with gradients scaled by a norm over all of them when `clipped`."""
    draft = Draft()
    handles = [draft.variable(f"w{n}", WEIGHT) for n in range(layers)]
    activations, weights, gradients = [draft.argument()], [], []
    for n, handle in enumerate(handles):
        weights.append(draft.op(f"read{n}", "ReadVariableOp", handle, shape=WEIGHT))
        activations.append(draft.op(f"act{n}", "MatMul", activations[-1], weights[-1]))
    flow = draft.op("loss_grad", "MatMul", activations[-1], weights[-1], phase="backward")
    for n in reversed(range(layers)):
        name = f"w_grad{n}"
        gradients.append((n, draft.op(name, "MatMul", activations[n], flow, shape=WEIGHT, phase="backward")))
        flow = draft.op(f"grad{n}", "MatMul", flow, weights[n], phase="backward")
    if clipped:
        squares = [draft.op(f"norm{n}", "L2Loss", g, shape=SCALAR, phase="backward") for n, g in gradients]
        norm = draft.op("global_norm", "AddN", *squares, shape=SCALAR, phase="backward")
        gradients = [(n, draft.op(f"clip{n}", "Mul", g, norm, shape=WEIGHT, phase="update")) for n, g in gradients]
    for n, gradient in gradients:
        draft.effect(f"update{n}", "AssignSubVariableOp", handles[n], gradient)
    return draft.program(flow)


def planned(program: Program) -> list[str]:
    before = simulate(program, 256, tidy_order(program, 256))
    inside = before.chunk_peak - before.chunk_resident
    plan = make_plan(program, before.chunk_resident + int(1.1 * inside) + 4 * 256 * 1024, 256, seconds=30)
    verify(plan.program)
    return [op.name for op in plan.program.ops]


def test_updates_go_before_the_end_of_the_backward_pass_and_are_counted() -> None:
    program = step(6, clipped=False)
    order = tidy_order(program, 256)
    account = Account(program, 256, order, simulate(program, 256, order))
    assert early_updates(program, order) >= 4
    saved = account.with_updates_last.chunk_peak - account.before.chunk_peak
    assert saved > 0
    names = planned(program)
    assert names.index("update5") < names.index("w_grad0")


def test_no_update_goes_before_a_norm_over_all_gradients() -> None:
    program = step(6, clipped=True)
    names = planned(program)
    first = min(names.index(f"update{n}") for n in range(6))
    assert first > names.index("global_norm") > max(names.index(f"w_grad{n}") for n in range(6))
    assert early_updates(program, tidy_order(program, 256)) == 0


def test_updates_last_is_an_order_that_can_execute() -> None:
    program = step(4, clipped=False)
    late = updates_last(program, tidy_order(program, 256))
    names = [program.ops[index].name for index in late]
    assert sorted(late) == list(range(len(program.ops)))
    assert names[-4:] == sorted(names[-4:], reverse=True)
    assert all(name.startswith("update") for name in names[-4:])
    assert simulate(program, 256, late).peak >= simulate(program, 256, tidy_order(program, 256)).peak


def test_every_point_of_the_curve_is_a_budget_that_can_be_met_for_that_time() -> None:
    program = step(8, clipped=False)
    shown = plan_curve(program, 4.0, 256)
    budgets = [point["budget_bytes"] for point in shown["curve"]]
    times = [point["slowdown"] for point in shown["curve"]]
    assert budgets == sorted(budgets, reverse=True)
    assert times == sorted(times)
    assert shown["smallest"]["budget_bytes"] == budgets[-1]
    middle = shown["curve"][len(budgets) // 2]
    plan = make_plan(program, middle["budget_bytes"], 256, seconds=30)
    assert plan.peak <= middle["budget_bytes"]
    better = replace(plan, budget=budgets[-1] - 1024)
    shown = plan_curve(program, 4.0, 256, found=better)
    assert shown["smallest"]["budget_bytes"] <= better.budget, "a plan that was found is never below the smallest"
