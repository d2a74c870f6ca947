"""The order in which readers are told, on graphs small enough to see it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from lowtide.program import Dim, Op, Program, Value
from lowtide.simulate.edges import KEPT_IN_ORDER, Edges

ROW = (Dim(0, 1), Dim(256))


def graph(*ops: tuple[str, tuple[int, ...]], after: dict[int, tuple[int, ...]] | None = None) -> Program:
    """Op number i makes value i from the values it names."""
    made = [Op(f"op{i}", kind, inputs, (i,), (after or {}).get(i, ())) for i, (kind, inputs) in enumerate(ops)]
    return Program(tuple(made), tuple(Value("float32", ROW) for _ in made), (), (len(made) - 1,), batch=8)


def listed(program: Program, *positions: int) -> Program:
    """The same, listed by the framework like this."""
    ops = zip(program.ops, positions, strict=True)
    return replace(program, ops=tuple(replace(op, position=position) for op, position in ops))


def readers(program: Program, op: int, seed: int = 0) -> list[int]:
    return Edges(program).of_process(Random(seed)).readers[op]


def test_readers_are_told_level_by_level_where_nothing_else_is_known() -> None:
    program = graph(("Const", ()), ("Const", ()), ("Neg", (1,)), ("AddV2", (0, 2)), ("Neg", (0,)))
    assert readers(program, 0) == [4, 3]


def test_ops_that_onednn_replaces_are_told_last() -> None:
    program = graph(("Const", ()), ("MatMul", (0, 0)), ("Neg", (0,)), ("BiasAddGrad", (0,)))
    assert readers(program, 0) == [2, 3, 1]


def test_whoever_waits_without_reading_is_told_after_the_readers() -> None:
    program = graph(("Const", ()), ("Neg", ()), ("Neg", (0,)), after={1: (0,)})
    assert readers(program, 0) == [2, 1]


def test_one_process_keeps_its_order_and_another_has_its_own_where_edges_are_many() -> None:
    program = graph(("Const", ()), *[("Neg", (0,))] * 40)
    orders = {tuple(readers(program, 0, seed)) for seed in range(10)}
    assert len(orders) == 10
    assert all(sorted(order) == list(range(1, 41)) for order in orders)


def test_few_edges_have_the_same_order_in_every_process() -> None:
    program = graph(("Const", ()), *[("Neg", (0,))] * KEPT_IN_ORDER)
    assert len({tuple(readers(program, 0, seed)) for seed in range(10)}) == 1


def test_many_roots_come_as_a_hash_set_of_neighbours_has_them() -> None:
    """Eight neighbours have the same place: the first keeps it, the next moves on by one, then by two more."""
    program = graph(*[("Const", ())] * 30, ("AddN", tuple(range(30))))
    orders = {tuple(Edges(program).of_process(Random(seed)).roots) for seed in range(20)}
    assert len(orders) > 10
    assert all(sorted(order) == list(range(30)) for order in orders)
    assert not any(list(order) == list(range(30)) for order in orders)


def test_readers_come_as_grappler_lists_them() -> None:
    program = graph(("Const", ()), ("Neg", (0,)), ("Neg", (0,)), ("Neg", (0,)))
    assert readers(listed(program, 0, 3, 1, 2), 0) == [2, 3, 1]


def test_a_reader_is_added_when_all_it_needs_is_there() -> None:
    """Op 2 is listed before op 3, but waits for a product, and those are listed last."""
    ops = (("Const", ()), ("MatMul", (0, 0)), ("AddV2", (0, 1)), ("Neg", (0,)))
    assert readers(listed(graph(*ops), 0, 1, 2, 3), 0) == [3, 1, 2]
