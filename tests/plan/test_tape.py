"""The search's own bookkeeping against the checker, on rows made by its own moves."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.plan import Problem, check
from lowtide.plan.anneal import Annealer
from lowtide.plan.contract import contract
from lowtide.plan.game import Game, prune
from lowtide.plan.order import best_order, early, greedy, late
from lowtide.plan.profile import row_profile
from lowtide.plan.tape import Tape
from lowtide.plan.wide import WideTape
from tests.plan.oracle import any_problems, plain_problems


def same(tape: Tape, fresh: Tape) -> bool:
    return list(tape.over) == list(fresh.over) and tape.excess == fresh.excess and tape.cost == fresh.cost


@pytest.mark.parametrize("kind", [Tape, WideTape])
@settings(max_examples=60, deadline=None)
@given(problem=any_problems(), seed=st.integers(0, 99), share=st.floats(0.3, 1.0))
def test_moves_keep_the_profile_that_a_replay_gives(
    kind: type[Tape], problem: Problem, seed: int, share: float
) -> None:
    game = contract(problem)
    tape = kind(game, range(game.end), 1 << 30)
    annealer = Annealer(tape, Random(seed))
    annealer.target = int(tape.peak() * share)
    tape.set_budget(annealer.target)
    for _ in range(60):
        annealer.step(5.0)
        assert same(tape, kind(game, tape.order(), tape.budget))


def annealed(problem: Problem, seed: int) -> tuple[Game, Tape]:
    """A row that some moves have made, good or bad."""
    game = contract(problem)
    tape = Tape(game, range(game.end), 0)
    annealer = Annealer(tape, Random(seed))
    for _ in range(40):
        annealer.step(1e9)
    return game, tape


@settings(max_examples=150, deadline=None)
@given(problem=any_problems(), seed=st.integers(0, 99))
def test_a_row_never_needs_more_than_the_tape_says(problem: Problem, seed: int) -> None:
    game, tape = annealed(problem, seed)
    full = game.expand(tape.order())
    checked = check(problem, full)
    assert checked.peak <= tape.peak()
    pruned = check(problem, prune(problem, full))
    assert pruned.peak <= checked.peak
    assert pruned.cost <= checked.cost


@settings(max_examples=100, deadline=None)
@given(problem=plain_problems(), seed=st.integers(0, 99))
def test_without_shared_buffers_a_row_needs_just_what_the_tape_says(problem: Problem, seed: int) -> None:
    game, tape = annealed(problem, seed)
    assert check(problem, game.expand(tape.order())).peak == tape.peak()


@settings(max_examples=100, deadline=None)
@given(any_problems())
def test_the_profile_of_a_row_is_that_of_the_tape(problem: Problem) -> None:
    game = contract(problem)
    tape = Tape(game, range(game.end), 0)
    assert row_profile(game, range(game.end)).bytes == tape.over


@settings(max_examples=100, deadline=None)
@given(any_problems())
def test_every_order_can_execute(problem: Problem) -> None:
    game = contract(problem)
    base = range(game.end)
    for order in (early(game, base), late(game, base), greedy(game), best_order(game, base)):
        check(problem, game.expand(order))


@given(plain_problems())
def test_a_plain_problem_is_not_contracted(problem: Problem) -> None:
    game: Game = contract(problem)
    assert [m for m in game.members if m] == [(n,) for n in range(len(problem.nodes))]
