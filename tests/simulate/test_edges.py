"""The order in which readers are told, on graphs small enough to see it."""

from __future__ import annotations

from random import Random

from lowtide.program import Dim, Op, Program, Value
from lowtide.simulate.edges import KEPT_IN_ORDER, Edges

ROW = (Dim(0, 1), Dim(256))


def graph(*ops: tuple[str, tuple[int, ...]], after: dict[int, tuple[int, ...]] | None = None) -> Program:
    """Op number i makes value i from the values it names."""
    made = [Op(f"op{i}", kind, inputs, (i,), (after or {}).get(i, ())) for i, (kind, inputs) in enumerate(ops)]
    return Program(tuple(made), tuple(Value("float32", ROW) for _ in made), (), (len(made) - 1,), batch=8)


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


def test_roots_start_anywhere_and_wrap_around() -> None:
    program = graph(*[("Const", ())] * 30, ("AddN", tuple(range(30))))
    for seed in range(20):
        roots = Edges(program).of_process(Random(seed)).roots
        at = roots.index(0)
        assert roots[at:] + roots[:at] == list(range(30))
