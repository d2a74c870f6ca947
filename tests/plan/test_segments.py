"""Chains of blocks: what the recursion makes of deep training steps."""

from __future__ import annotations

import pytest

from benchmarks.graphs import chain, layered
from lowtide.plan import Planner, check
from lowtide.plan.contract import contract
from lowtide.plan.evict import fit
from lowtide.plan.profile import row_profile
from lowtide.plan.segments import chain_row, find_blocks


def test_a_chain_has_a_block_for_each_layer_between_its_ends() -> None:
    game = contract(chain(30))
    order = range(game.end)
    blocks = find_blocks(game, order, row_profile(game, order))
    assert len(blocks) >= 26
    there, back = ([block.forward.start for block in blocks], [block.backward.start for block in blocks])
    assert there == sorted(there)
    assert back == sorted(back, reverse=True)


def test_a_layered_graph_is_no_chain() -> None:
    game = contract(layered(60, 0.6, seed=1))
    assert chain_row(game, range(game.end), 1 << 40) is None


@pytest.mark.parametrize("share", [0.7, 0.4, 0.2, 0.12])
def test_a_chain_is_executed_within_the_budget(share: float) -> None:
    problem = chain(60)
    game = contract(problem)
    budget = int(share * check(problem, problem.base).peak)
    row = chain_row(game, range(game.end), budget)
    assert row is not None
    assert check(problem, game.expand(row)).peak <= budget


def test_a_deep_chain_comes_down_further_than_eviction_does() -> None:
    problem = chain(120)
    game = contract(problem)
    budget = int(0.055 * check(problem, problem.base).peak)
    evicted = fit(game, range(game.end), budget, float("inf"))
    assert max(row_profile(game, evicted).bytes) > budget
    assert Planner(problem, processes=1).solve(budget, 1.0).peak <= budget
