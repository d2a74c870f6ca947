"""Plans against the checker, against each other and, where problems are tiny, against exhaustion."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lowtide.errors import Infeasible
from lowtide.plan import Planner, Problem, Progress, check, curve, solve
from lowtide.plan.bound import peak_floor
from lowtide.plan.contract import contract
from lowtide.plan.evict import fit
from lowtide.plan.exact import prove
from lowtide.plan.stages import Stages
from tests.plan.oracle import any_problems, optimum, plain, plain_problems

SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much]

# A training step in small: five layers forward, and backward nodes that read the layers again.
LAYERS = 5
STEP = plain(
    *[(3, 10, (i - 1,) if i else ()) for i in range(LAYERS)],
    *[(6, 10, (LAYERS + i - 1, LAYERS - 1 - i)) for i in range(LAYERS)],
)


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(problem=plain_problems(), share=st.floats(0.4, 1.0))
def test_tiny_plans_cost_what_exhaustion_says(problem: Problem, share: float) -> None:
    planner = Planner(problem, processes=1)
    budget = int(planner.base.peak * share)
    best = optimum(problem, budget)
    if best is None:
        with pytest.raises(Infeasible) as raised:
            planner.solve(budget, 0.15)
        assert raised.value.smallest_bytes > budget
        return
    solution = planner.solve(budget, 0.15)
    check(problem, solution.schedule, budget)
    assert solution.cost == best
    assert solution.lower_bound <= best


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(problem=any_problems(), share=st.floats(0.3, 1.0))
def test_no_plan_is_ever_over_its_budget(problem: Problem, share: float) -> None:
    planner = Planner(problem, processes=1)
    budget = int(planner.base.peak * share)
    try:
        solution = planner.solve(budget, 0.05)
    except Infeasible as error:
        assert error.smallest_bytes > budget
        assert planner.solve(error.smallest_bytes, 0.05).peak <= error.smallest_bytes
        return
    checked = check(problem, solution.schedule, budget)
    assert (checked.peak, checked.cost) == (solution.peak, solution.cost)
    assert solution.lower_bound <= solution.cost


@settings(max_examples=20, deadline=None, suppress_health_check=SLOW)
@given(any_problems())
def test_a_larger_budget_never_costs_more_and_never_has_a_smaller_peak(problem: Problem) -> None:
    planner = Planner(problem, processes=1)
    low, high = planner.smallest(0.05).peak, planner.base.peak
    costs = [planner.solve(low + (high - low) * i // 4, 0.03).cost for i in range(5)]
    answers = [planner.solve(low + (high - low) * i // 4, 0.0) for i in range(5)]
    again = [answer.cost for answer in answers]
    assert again == sorted(again, reverse=True)
    assert [answer.peak for answer in answers] == sorted(answer.peak for answer in answers)
    assert all(second <= first for first, second in zip(costs, again, strict=True))


def test_a_budget_at_the_base_peak_keeps_the_program_as_it_is() -> None:
    base = check(STEP, STEP.base)
    solution = solve(STEP, base.peak, 1.0)
    assert solution.schedule == STEP.base
    assert solution.optimal


def test_a_training_step_is_solved_and_proven() -> None:
    base = check(STEP, STEP.base)
    solution = solve(STEP, base.peak - 10, 4.0)
    assert solution.cost == optimum(STEP, base.peak - 10)
    assert solution.optimal


def test_infeasible_names_the_smallest_budget_and_the_node() -> None:
    with pytest.raises(Infeasible, match=r"node \d+ alone needs 30") as raised:
        solve(STEP, 29, 0.5)
    assert raised.value.smallest_bytes == 30
    assert solve(STEP, 30, 2.0).peak <= 30


def test_the_curve_falls_from_the_smallest_budget_to_the_base_peak() -> None:
    points = curve(STEP, 2.0)
    assert points[0].peak == 30
    assert [p.cost for p in points] == sorted({p.cost for p in points}, reverse=True)
    assert points[-1].cost == check(STEP, STEP.base).cost
    for point in points:
        assert check(STEP, point.schedule, point.budget).cost == point.cost


def test_progress_is_reported() -> None:
    seen: list[Progress] = []
    solve(STEP, 30, 0.5, seen.append)
    assert {"evict", "backwards"} <= {progress.stage for progress in seen}
    assert [progress.seconds for progress in seen] == sorted(progress.seconds for progress in seen)


@settings(max_examples=40, deadline=None)
@given(problem=plain_problems(), share=st.floats(0.5, 1.0))
def test_no_bound_exceeds_the_optimum(problem: Problem, share: float) -> None:
    budget = int(check(problem, problem.base).peak * share)
    best = optimum(problem, budget)
    if best is None:
        return
    assert peak_floor(problem).peak <= budget
    assert Stages(contract(problem), budget, best).bound(5.0) <= best + 1e-6


@settings(max_examples=15, deadline=None)
@given(problem=plain_problems(most=6), share=st.floats(0.6, 1.0))
def test_the_exact_model_agrees_with_exhaustion(problem: Problem, share: float) -> None:
    budget = int(check(problem, problem.base).peak * share)
    best = optimum(problem, budget)
    if best is None:
        return
    known = solve(problem, budget, 0.5).schedule
    proof = prove(contract(problem), budget, known, 20.0, most=6, workers=1)
    assert proof.optimal
    assert proof.cost == best
    assert check(problem, proof.order or (), budget).cost == best


@settings(max_examples=60, deadline=None)
@given(problem=any_problems(most=25), share=st.floats(0.5, 1.0))
def test_eviction_only_returns_rows_that_can_execute(problem: Problem, share: float) -> None:
    game = contract(problem)
    budget = int(check(problem, problem.base).peak * share)
    check(problem, game.expand(fit(game, range(game.end), budget, float("inf"))))
