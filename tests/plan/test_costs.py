"""What an op costs: as measured where it was, as modelled where it was not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowtide.plan.bridge import problem_of
from lowtide.plan.costs import op_seconds
from lowtide.program import Dim, Program, Times
from tests.drafts import Draft

BATCH = 4
LARGE = (Dim(0, 1000), Dim(256))


def two_ops() -> Program:
    draft = Draft()
    x = draft.argument(shape=LARGE)
    return draft.program(draft.op("second", "Neg", draft.op("first", "Neg", x, shape=LARGE), shape=LARGE))


def test_a_measured_op_costs_what_was_measured() -> None:
    program = replace(two_ops(), times=Times(BATCH, {"first": 0.25, "second": 0.5}))
    assert list(op_seconds(program, BATCH))[1:] == pytest.approx([0.25, 0.5])


def test_a_measured_time_grows_with_the_batch_as_the_model_does() -> None:
    program = two_ops()
    modelled = op_seconds(program, 2 * BATCH)[1] / op_seconds(program, BATCH)[1]
    measured = replace(program, times=Times(BATCH, {"first": 0.25}))
    assert op_seconds(measured, 2 * BATCH)[1] == pytest.approx(0.25 * modelled)
    assert modelled == pytest.approx(2, rel=0.01)


def test_an_op_that_was_not_measured_counts_in_the_measure_of_those_that_were() -> None:
    program = replace(two_ops(), times=Times(BATCH, {"first": 0.25}))
    assert op_seconds(program, BATCH)[2] == pytest.approx(0.25), "the same work as the first"


def test_drawing_random_numbers_costs_more_than_moving_them() -> None:
    draft = Draft()
    seed = draft.argument("seed", (Dim(2),), "int32")
    draft.op("moved", "Fill", seed, shape=LARGE)
    program = draft.program(draft.op("drawn", "StatelessRandomUniformV2", seed, shape=LARGE))
    _, moved, drawn = op_seconds(program, BATCH)
    assert drawn > 10 * moved


def test_the_planner_is_asked_with_measured_costs() -> None:
    program = replace(two_ops(), times=Times(BATCH, {"first": 0.25, "second": 0.5}))
    nodes = problem_of(program, BATCH, range(3)).nodes
    assert [node.cost for node in nodes[1:]] == pytest.approx([0.25, 0.5])
