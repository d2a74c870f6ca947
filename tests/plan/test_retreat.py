"""Rows for budgets that eviction does not come down to: retreats backwards in time, rollbacks of a tape."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.graphs import layered
from lowtide.plan import Node, Planner, Problem, Value, check, worker
from lowtide.plan.contract import contract
from lowtide.plan.evict import fit
from lowtide.plan.order import best_order
from lowtide.plan.profile import row_profile
from lowtide.plan.retreat import Retreat, lowest_rows, retreats
from lowtide.plan.rollback import Rollback, idle_and_busy, roll_back
from lowtide.plan.tape import Tape
from tests.plan.oracle import any_problems, optimum, plain_problems

SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much]
ENDLESS = float("inf")


@pytest.mark.parametrize(("graph", "share"), [((60, 0.5, 2), 50), ((60, 0.7, 3), 60), ((40, 0.6, 1), 65)])
def test_a_retreat_finds_a_row_where_eviction_finds_none(graph: tuple[int, float, int], share: int) -> None:
    count, width, seed = graph
    problem = layered(count, width, seed=seed)
    game = contract(problem)
    budget = check(problem, problem.base).peak * share // 100
    evicted = fit(game, best_order(game, range(game.end)), budget, ENDLESS)
    assert max(row_profile(game, evicted).bytes) > budget
    row = Retreat(game, budget).run(12, ENDLESS)
    assert row is not None
    assert check(problem, game.expand(row)).peak <= budget
    assert Retreat(game, budget).run(12, ENDLESS) == row


def test_one_process_alone_meets_a_budget_that_eviction_does_not() -> None:
    problem = layered(60, 0.5, seed=2)
    planner = Planner(problem, processes=1)
    budget = planner.base.peak * 50 // 100
    assert planner.solve(budget, 4.0, settle=0.01).peak <= budget


@settings(max_examples=100, deadline=None, suppress_health_check=SLOW)
@given(problem=plain_problems(most=8), share=st.floats(0.3, 1.0), width=st.integers(1, 12))
def test_a_retreat_never_breaks_the_budget_nor_beats_the_optimum(problem: Problem, share: float, width: int) -> None:
    budget = int(check(problem, problem.base).peak * share)
    row = Retreat(contract(problem), budget).run(width, ENDLESS)
    if row is not None:
        best = optimum(problem, budget)
        assert best is not None
        assert check(problem, row, budget).cost >= best


def test_where_the_budget_is_out_of_reach_peaks_come_down_towards_it() -> None:
    problem = layered(40, 0.6, seed=1)
    game, base = contract(problem), check(problem, problem.base).peak
    peaks = [max(row_profile(game, row).bytes) for row in lowest_rows(game, base // 3, base, ENDLESS)]
    assert peaks
    assert base // 3 < min(peaks) < base
    assert peaks == sorted(peaks, reverse=True)


def test_a_retreat_is_late_when_the_time_is_up() -> None:
    game = contract(layered(40, 0.6, seed=1))
    assert Retreat(game, 1 << 40).run(12, 0.0) is None


def test_only_plain_games_are_for_retreats() -> None:
    plain = layered(20, 0.5)
    assert retreats(contract(plain))
    once = (*plain.nodes[:5], Node(1.0, plain.nodes[5].inputs, plain.nodes[5].outputs, recomputable=False))
    assert not retreats(contract(Problem((*once, *plain.nodes[6:]), plain.values, "once")))


def twins() -> Problem:
    """One large value that two small steps away give two middling ones, which are read at the end."""
    ins = [(), (0,), (0,), (), (1, 2, 3)]
    sizes = [50, 40, 40, 90, 1]
    return Problem(
        tuple(Node(1.0, tuple(reads), (n,)) for n, reads in enumerate(ins)), tuple(map(Value, sizes)), "twins"
    )


def test_what_is_cheap_only_together_is_dropped_together() -> None:
    game = contract(twins())
    assert game.end == 5
    cut = Rollback(game)
    cut.set_prices(100.0)
    assert cut.choose([1, 2]) == [0, 1, 2]
    cut.set_prices(0.0)
    assert cut.choose([1, 2]) == []
    cut.set_prices(100.0)
    cut.hold([1, 2])
    assert cut.choose([1, 2]) == []


def test_a_rollback_empties_the_place_it_is_for() -> None:
    game = contract(twins())
    tape = Tape(game, range(game.end), 0)
    key = tape.keys[3]
    assert idle_and_busy(tape, key) == ([1, 2], [3])
    before = tape.over[3]
    assert any(roll_back(tape, Rollback(game), 3, Random(seed)) and tape.over[3] == before - 80 for seed in range(5))


@settings(max_examples=100, deadline=None)
@given(problem=any_problems(), seed=st.integers(0, 99), place=st.floats(0, 0.99))
def test_a_rollback_keeps_the_profile_that_a_replay_gives(problem: Problem, seed: int, place: float) -> None:
    game = contract(problem)
    tape = Tape(game, range(game.end), 0)
    before = tape.order()
    if not roll_back(tape, Rollback(game), int(place * game.end), Random(seed)):
        tape.undo(0)
        assert tape.order() == before
    fresh = Tape(game, tape.order(), 0)
    assert (list(tape.over), tape.excess, tape.cost) == (list(fresh.over), fresh.excess, fresh.cost)


def test_a_child_that_is_abandoned_ends() -> None:
    game = contract(layered(60, 0.5, seed=2))
    order = best_order(game, range(game.end))
    child = worker.start(worker.Job(game, order, 0, ENDLESS, seed=0, enough=0.0, moves=1 << 60))
    assert child is not None
    worker.abandon(child)
    assert child.returncode not in (None, 0)
