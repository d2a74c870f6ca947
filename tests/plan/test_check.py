"""The checker, by hand-made schedules whose bytes can be counted on paper."""

from __future__ import annotations

import pytest

from lowtide.plan import BrokenSchedule, Node, Problem, Value, check
from tests.plan.oracle import plain

CHAIN = plain((1, 4, ()), (2, 3, (0,)), (4, 2, (1,)))


def test_a_chain_holds_two_neighbours_at_a_time() -> None:
    checked = check(CHAIN, (0, 1, 2))
    assert (checked.peak, checked.cost, checked.at) == (7, 7, 1)


def test_a_value_read_again_later_is_held_until_then() -> None:
    problem = plain((1, 4, ()), (1, 3, (0,)), (1, 2, (1,)), (1, 1, (0, 2)))
    assert check(problem, (0, 1, 2, 3)).peak == 9
    assert check(problem, (0, 1, 2, 0, 3)).peak == 7


def test_a_repeat_that_nobody_reads_is_live_while_it_executes() -> None:
    assert check(CHAIN, (0, 1, 0, 2)).peak == 7
    assert check(CHAIN, (0, 1, 0, 2)).cost == 8


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        ((0, 2, 1), "before node 1 made it"),
        ((0, 1), "node 2: never executed"),
        ((0, 1, 2, 9), "no node 9"),
        ((), "never executed"),
    ],
)
def test_what_cannot_execute_is_refused_with_the_reason(schedule: tuple[int, ...], reason: str) -> None:
    with pytest.raises(BrokenSchedule, match=reason):
        check(CHAIN, schedule)


def test_a_peak_above_the_budget_is_refused() -> None:
    check(CHAIN, (0, 1, 2), budget=7)
    with pytest.raises(BrokenSchedule, match="7 bytes live, budget 6"):
        check(CHAIN, (0, 1, 2), budget=6)


def test_a_once_only_node_does_not_execute_again() -> None:
    problem = Problem((Node(1, (), (0,), recomputable=False), Node(1, (0,), (1,))), (Value(1), Value(1)))
    with pytest.raises(BrokenSchedule, match="not recomputable"):
        check(problem, (0, 1, 0))


def test_order_edges_bind_first_executions() -> None:
    problem = Problem((Node(1, (), (0,)), Node(1, (), (1,), after=(0,))), (Value(1), Value(1)))
    check(problem, (0, 1, 0))
    with pytest.raises(BrokenSchedule, match="must follow"):
        check(problem, (1, 0))


def test_nobody_reads_a_value_after_it_ended() -> None:
    nodes = (Node(1, (0,), (1,)), Node(1, (0,), (), recomputable=False, ends=(0,)))
    problem = Problem(nodes, (Value(5, resident=True), Value(1)))
    assert check(problem, (0, 1)).peak == 6
    with pytest.raises(BrokenSchedule, match="after node 1 ended it"):
        check(problem, (0, 1, 0))


def test_scratch_is_live_while_its_node_executes() -> None:
    problem = Problem((Node(1, (), (0,), scratch=10), Node(1, (0,), (1,))), (Value(4), Value(1)))
    assert check(problem, (0, 1)).peak == 14


def test_an_alias_keeps_its_storage_and_adds_none() -> None:
    values = (Value(4), Value(4, alias_of=0), Value(3), Value(1))
    nodes = (Node(1, (), (0,)), Node(0, (0,), (1,)), Node(1, (), (2,)), Node(1, (1, 2), (3,)))
    assert check(Problem(nodes, values), (0, 1, 2, 3)).peak == 8


def test_a_buffer_read_for_the_last_time_is_handed_on() -> None:
    values = (Value(4), Value(4, may_reuse=(0,)), Value(1))
    nodes = (Node(1, (), (0,)), Node(1, (0,), (1,)), Node(1, (1,), (2,)))
    assert check(Problem(nodes, values), (0, 1, 2)).peak == 5
    held = (Node(1, (), (0,)), Node(1, (0,), (1,)), Node(1, (0, 1), (2,)))
    assert check(Problem(held, values), (0, 1, 2)).peak == 9


def test_a_kept_buffer_is_never_handed_on() -> None:
    values = (Value(4, kept=True), Value(4, may_reuse=(0,)))
    nodes = (Node(1, (), (0,)), Node(1, (0,), (1,)))
    assert check(Problem(nodes, values), (0, 1)).peak == 8


def test_kept_values_are_live_at_the_end() -> None:
    problem = Problem(
        (Node(1, (), (0,)), Node(1, (), (1,)), Node(1, (1,), (2,))), (Value(4, kept=True), Value(3), Value(2))
    )
    assert check(problem, (0, 1, 2)).peak == 9
    assert check(problem, (1, 2, 0)).peak == 5


def test_a_buffer_that_an_alias_shares_on_is_not_handed_on() -> None:
    values = (Value(4), Value(4, may_reuse=(0,), kept=True), Value(4, alias_of=0, kept=True))
    nodes = (Node(1, (), (0,)), Node(1, (0,), (1, 2)))
    assert check(Problem(nodes, values), (0, 1)).peak == 8
