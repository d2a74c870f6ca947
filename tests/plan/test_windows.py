"""Windows of a row planned anew: legal, within the budget, never dearer, and without repeats that are not needed."""

from __future__ import annotations

from time import monotonic

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.graphs import layered
from lowtide.plan import Problem, check
from lowtide.plan.contract import contract
from lowtide.plan.evict import fit
from lowtide.plan.exact import window
from lowtide.plan.profile import row_profile
from lowtide.plan.windows import fits, improve
from tests.plan.oracle import any_problems, plain

SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much]
STEP = plain((3, 10, ()), (3, 10, (0,)), (3, 10, (1,)), (6, 10, (2, 1)), (6, 10, (3, 0)))


def test_a_repeat_that_the_budget_does_not_need_is_gone() -> None:
    game = contract(STEP)
    wasteful = (0, 1, 2, 3, 0, 4)
    budget = check(STEP, STEP.base).peak
    assert window(game, budget, wasteful, 1, 6, 5.0) == (0, 1, 2, 3, 4)


def test_a_repeat_that_the_budget_needs_stays() -> None:
    game = contract(STEP)
    budget = check(STEP, STEP.base).peak - 10
    row = (0, 1, 2, 3, 0, 4)
    assert check(STEP, row).peak <= budget
    assert window(game, budget, row, 0, 6, 5.0) == row


@settings(max_examples=30, deadline=None, suppress_health_check=SLOW)
@given(any_problems(most=16), st.floats(0.5, 1.0), st.integers(0, 20), st.integers(2, 20))
def test_a_window_anywhere_leaves_a_schedule_within_the_budget(
    problem: Problem, share: float, low: int, length: int
) -> None:
    game = contract(problem)
    assume(fits(game))
    row = fit(game, range(game.end), int(share * check(problem, problem.base).peak), float("inf"))
    budget = max(row_profile(game, row).bytes)
    low = min(low, len(row) - 1)
    new = window(game, budget, row, low, min(len(row), low + length), 2.0)
    assert max(row_profile(game, new).bytes) <= budget
    assert sum(game.cost[g] for g in new) <= sum(game.cost[g] for g in row)
    check(problem, game.expand(new))


def test_windows_make_a_greedy_row_cheaper() -> None:
    problem = layered(60, 0.43, seed=4)
    game = contract(problem)
    budget = int(0.75 * check(problem, problem.base).peak)
    row = fit(game, range(game.end), budget, float("inf"))
    assert max(row_profile(game, row).bytes) <= budget
    found = improve(game, row, budget, monotonic() + 3.0, seed=0)
    costs = [sum(game.cost[g] for g in row), *(cost for _, cost, _ in found)]
    assert len(found) > 0
    assert costs == sorted(costs, reverse=True)
    for peak, cost, better in found:
        checked = check(problem, better, budget)
        assert (checked.peak, checked.cost) == (peak, cost)
