"""Contraction: groups of nodes must themselves have an order."""

from __future__ import annotations

from lowtide.plan import contract as room
from lowtide.plan.problem import Node, Problem, Value

BIG = 1000


def two_crossed_aliases() -> Problem:
    """Each alias goes with what it views, and each waits for what the other views: not both can be folded."""
    values = (Value(BIG), Value(BIG), Value(BIG, alias_of=0), Value(BIG, alias_of=1), Value(8, kept=True))
    nodes = (
        Node(1.0, outputs=(0,)),
        Node(1.0, outputs=(1,)),
        Node(0.1, inputs=(0,), outputs=(2,), after=(1,)),
        Node(0.1, inputs=(1,), outputs=(3,), after=(0,)),
        Node(1.0, inputs=(2, 3), outputs=(4,)),
    )
    return Problem(nodes, values)


def test_folding_each_alone_would_make_a_circle() -> None:
    problem = two_crossed_aliases()
    links = room._links(problem)
    group_of, _, _ = room._fold_aliases(problem, links)
    assert room._tangled(links, group_of) == {0, 1}


def test_groups_that_wait_for_one_another_are_taken_apart() -> None:
    game = room.contract(two_crossed_aliases())
    assert sorted(node for group in game.members for node in group) == [0, 1, 2, 3, 4]
    where = {node: position for position, group in enumerate(game.members) for node in group}
    assert max(where[0], where[1]) < min(where[2], where[3]) <= max(where[2], where[3]) < where[4]
