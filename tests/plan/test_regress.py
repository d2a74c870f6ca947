"""The search backwards: against exhaustion on tiny problems, and what it proves of larger ones."""

from __future__ import annotations

from random import Random
from time import monotonic

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.graphs import layered
from lowtide.errors import Infeasible
from lowtide.plan import Planner, Problem, check
from lowtide.plan.contract import contract
from lowtide.plan.regress import Regress, playable
from tests.plan.oracle import any_problems, optimum, plain_problems

SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much]


@settings(max_examples=150, deadline=None, suppress_health_check=SLOW)
@given(problem=plain_problems(most=8), share=st.floats(0.3, 1.0))
def test_the_search_backwards_agrees_with_exhaustion(problem: Problem, share: float) -> None:
    budget = int(check(problem, problem.base).peak * share)
    best = optimum(problem, budget)
    outcome = Regress(contract(problem), budget).run(float("inf"))
    base = sum(node.cost for node in problem.nodes)
    if best is None:
        assert outcome.row is None
        assert outcome.bound == float("inf")
        return
    assert outcome.row is not None
    assert check(problem, outcome.row, budget).cost == best
    assert outcome.bound == outcome.extra == best - base


@settings(max_examples=50, deadline=None, suppress_health_check=SLOW)
@given(problem=plain_problems(most=8), share=st.floats(0.3, 1.0), width=st.integers(1, 3))
def test_what_a_narrow_pass_leaves_out_is_still_a_bound(problem: Problem, share: float, width: int) -> None:
    from lowtide.plan.regress import _Pass

    budget = int(check(problem, problem.base).peak * share)
    best = optimum(problem, budget)
    outcome = _Pass(Regress(contract(problem), budget), width, 0.0, float("inf"), float("inf")).run()
    base = sum(node.cost for node in problem.nodes)
    assert outcome.bound <= (float("inf") if best is None else best - base)
    if outcome.row is not None:
        assert check(problem, outcome.row, budget).cost <= base + outcome.extra


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(any_problems())
def test_games_with_rules_of_their_own_are_left_alone(problem: Problem) -> None:
    game = contract(problem)
    if playable(game):
        assert all(node.recomputable and not node.ends for node in problem.nodes)
        needed = needs(problem)
        assert all({*node.after} <= before for node, before in zip(problem.nodes, needed, strict=True))


def needs(problem: Problem) -> list[set[int]]:
    """For each node those that it reads from, and those that they do."""
    maker = {value: index for index, node in enumerate(problem.nodes) for value in node.outputs}
    found: list[set[int]] = []
    for node in problem.nodes:
        read = {maker[value] for value in node.inputs if value in maker}
        found.append(read.union(*(found[index] for index in read)))
    return found


def test_a_layered_graph_of_a_few_dozen_nodes_is_proven() -> None:
    problem = layered(40, 0.43, seed=2)
    budget = int(0.7 * check(problem, problem.base).peak)
    outcome = Regress(contract(problem), budget).run(monotonic() + 20)
    assert outcome.row is not None
    assert outcome.bound == outcome.extra
    assert check(problem, outcome.row, budget).cost == check(problem, problem.base).cost + outcome.extra


def test_a_known_row_that_is_optimal_is_proven_so_without_another() -> None:
    problem = layered(40, 0.43, seed=2)
    budget = int(0.7 * check(problem, problem.base).peak)
    game = contract(problem)
    best = Regress(game, budget).run(monotonic() + 20).extra
    again = Regress(game, budget).run(monotonic() + 20, best)
    assert again.row is None
    assert again.bound == best


def test_that_there_is_no_plan_is_proven_above_the_floor_too() -> None:
    rng = Random(0)
    for seed in range(20):
        problem = layered(14, 0.5, seed=seed)
        planner = Planner(problem, seed=rng.randrange(99), processes=1)
        budget = planner.floor.peak
        if optimum_is_none(problem, budget):
            with pytest.raises(Infeasible, match="there is no plan within it"):
                planner.solve(budget, 2.0)
            return
    pytest.fail("no graph whose floor is out of reach")


def optimum_is_none(problem: Problem, budget: int) -> bool:
    return Regress(contract(problem), budget).run(float("inf")).bound == float("inf")
