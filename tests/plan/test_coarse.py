"""The coarse game, the bounds and the proofs against the checker and, where problems are tiny, against exhaustion."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import graphs
from lowtide.plan import Node, Planner, Problem, Value, check
from lowtide.plan.anneal import Annealer
from lowtide.plan.coarsen import SMALL_SHARE, coarsen
from lowtide.plan.contract import contract
from lowtide.plan.cut import best_cut, facts_of_game, facts_of_problem
from lowtide.plan.evict import fit
from lowtide.plan.exhaust import impossible
from lowtide.plan.game import prune
from lowtide.plan.tape import Tape
from tests.plan.oracle import any_problems, optimum, plain_problems


@settings(max_examples=80, deadline=None)
@given(problem=any_problems(most=25), small=st.integers(0, 60), seed=st.integers(0, 99))
def test_a_coarse_row_executes_within_what_its_game_says(problem: Problem, small: int, seed: int) -> None:
    game = contract(problem)
    coarse = coarsen(game, range(game.end), int(small / SMALL_SHARE))
    tape = Tape(coarse, range(coarse.end), 0)
    annealer = Annealer(tape, Random(seed))
    for _ in range(40):
        annealer.step(1e9)
    full = coarse.expand(tape.order())
    checked = check(problem, full)
    assert checked.peak <= tape.peak()
    assert check(problem, prune(problem, full)).cost <= tape.cost + coarse.fixed + 1e-9


def test_a_group_does_not_come_again_where_one_that_rides_along_has_ended_what_it_reads() -> None:
    """The update of a small variable rides with the backward pass through the layer that reads it."""
    variable, a, b, c = Value(1, resident=True), Value(50), Value(60), Value(60)
    nodes = (
        Node(1, (), (1,)),
        Node(1, (0, 1), (2,)),  # reads the variable
        Node(1, (), (), recomputable=False, after=(1,), ends=(0,)),  # updates it
        Node(1, (2,), (3,)),
        Node(1, (1,), ()),
        Node(1, (3,), ()),
    )
    problem = Problem(nodes, (variable, a, b, c))
    game = contract(problem)
    coarse = coarsen(game, range(game.end), int(2 / SMALL_SHARE))
    (group,) = (g for g, members in enumerate(coarse.members) if 1 in members)
    assert {1, 2, 3} <= {*coarse.members[group]}, "all three are one group, or this tests nothing"
    assert coarse.once[group]


@settings(max_examples=60, deadline=None)
@given(problem=any_problems(most=25), share=st.floats(0.4, 1.0))
def test_eviction_from_a_cut_only_returns_rows_that_can_execute(problem: Problem, share: float) -> None:
    game = contract(problem)
    budget = int(check(problem, problem.base).peak * share)
    cut = best_cut(facts_of_game(game), budget)
    check(problem, game.expand(fit(game, range(game.end), budget, float("inf"), cut)))


@settings(max_examples=80, deadline=None)
@given(problem=plain_problems(), share=st.floats(0.4, 1.0))
def test_no_cut_exceeds_the_optimum(problem: Problem, share: float) -> None:
    budget = int(check(problem, problem.base).peak * share)
    best = optimum(problem, budget)
    if best is not None:
        assert best_cut(facts_of_problem(problem), budget).bound <= best + 1e-6


@settings(max_examples=60, deadline=None)
@given(problem=any_problems(), share=st.floats(0.3, 1.0))
def test_no_cut_exceeds_what_a_plan_costs(problem: Problem, share: float) -> None:
    planner = Planner(problem, processes=1)
    point = planner.within(max(planner.smallest(0.05).peak, int(planner.base.peak * share)))
    assert point is not None
    assert best_cut(facts_of_problem(problem), point.peak).bound <= point.cost + 1e-6


@settings(max_examples=60, deadline=None)
@given(problem=plain_problems(most=6), share=st.floats(0.3, 1.0))
def test_exhaustion_proves_what_is_impossible_and_nothing_else(problem: Problem, share: float) -> None:
    budget = int(check(problem, problem.base).peak * share)
    assert impossible(contract(problem), budget, most=10**6) == (optimum(problem, budget) is None)
    if impossible(contract(problem), budget, most=2):
        assert optimum(problem, budget) is None


def test_a_cut_finds_what_a_training_step_has_to_pay() -> None:
    problem = graphs.resnet50((1, 1))
    planner = Planner(problem, processes=1)
    solution = planner.solve(planner.base.peak * 6 // 10, 60.0, settle=0.01)
    assert solution.lower_bound > planner.base.cost
    assert solution.gap < 0.02


def test_a_long_program_is_planned_as_a_short_one() -> None:
    planner = Planner(graphs.program(40), processes=1)
    assert planner.searches[0].game.end < planner.game.end / 3
    budget = planner.base.peak // 2
    solution = planner.solve(budget, 60.0, settle=0.01)
    assert check(planner.problem, solution.schedule, budget).cost == solution.cost
    assert solution.cost < 1.1 * planner.base.cost


def test_the_same_problem_has_the_same_plan_every_time() -> None:
    problem = graphs.layered(60, 0.4, seed=3)
    budget = check(problem, problem.base).peak * 7 // 10
    first, again = (Planner(problem).solve(budget, 60.0, settle=0.02) for _ in range(2))
    assert first.schedule == again.schedule
    assert first.lower_bound == again.lower_bound
