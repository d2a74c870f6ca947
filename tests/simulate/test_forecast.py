"""What a user asks of a step before it runs, checked by asking the simulator the long way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.program import Dim, Op, Program
from lowtide.simulate import CATEGORIES, fits, forecast, largest_batch, largest_buffers, simulate, tidy_order
from tests.drafts import KB, ROW, SCALAR, SQUARE, Draft, chain, kept_for_backward, random_programs

PROGRAMS = {"chain": chain(5), "wide": chain(3, shape=(Dim(2, 3), Dim(512))), "trained": kept_for_backward(3)}


@pytest.mark.parametrize("batch", [1, 8, 100])
def test_the_law_of_a_chain_is_its_batch_and_two_rows(batch: int) -> None:
    answer = forecast(chain(10), batch)
    assert answer.per_sample == 3 * KB
    assert answer.fixed + answer.per_sample * batch == answer.peak


def test_the_law_is_exact_in_requested_bytes_at_other_batches_for_a_step_whose_peak_stays_where_it_is() -> None:
    program = kept_for_backward(4)
    law = forecast(program, 512)
    assert law.per_sample is not None
    for batch in (600, 1024, 2000):
        measured = simulate(program, batch, tidy_order(program, batch))
        assert measured.peak == law.timeline.peak + law.per_sample * (batch - 512)


def test_a_step_traced_for_one_batch_has_no_law_and_no_largest_batch() -> None:
    answer = forecast(chain(3, shape=SQUARE), budget=1 << 30)
    assert answer.per_sample is None
    assert answer.largest_batch is None
    assert answer.fixed == answer.peak


@given(random_programs(), st.integers(1, 200))
@settings(max_examples=30, deadline=None)
def test_the_categories_sum_to_the_peak(program: Program, batch: int) -> None:
    answer = forecast(program, batch)
    assert set(answer.by_category) == set(CATEGORIES)
    assert sum(answer.by_category.values()) == answer.peak
    assert min(answer.by_category.values()) >= 0
    assert sum(answer.by_layer.values()) == sum(buffer.bytes for buffer in answer.at_peak())


def test_layers_and_tensors_come_largest_first() -> None:
    answer = forecast(kept_for_backward(5), 64)
    assert list(answer.by_layer.values()) == sorted(answer.by_layer.values(), reverse=True)
    sizes = [buffer.bytes for buffer in largest_buffers(answer, 7)]
    assert sizes == sorted((b.bytes for b in answer.at_peak()), reverse=True)[:7]


def test_the_plain_range_is_a_range_around_what_a_step_needs() -> None:
    answer = forecast(kept_for_backward(4), 64)
    assert answer.timeline.resident < answer.plain_low <= answer.plain_high


def brute_force(program: Program, budget: int, most: int) -> int:
    return max((batch for batch in range(1, most + 1) if fits(program, batch, budget)), default=0)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("budget", [64 * KB, 1 << 20, 3_000_000, 5 << 20])
def test_the_largest_batch_is_the_one_that_trying_them_all_finds(name: str, budget: int) -> None:
    program = PROGRAMS[name]
    found = largest_batch(program, budget)
    assert found == brute_force(program, budget, most=found + 40)


@pytest.mark.parametrize("start", [1, 2, 100, 5000, 1 << 20])
def test_a_bad_guess_costs_time_and_nothing_else(start: int) -> None:
    program = PROGRAMS["chain"]
    assert largest_batch(program, 3 << 20, start) == largest_batch(program, 3 << 20)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_larger_budget_never_fits_less(name: str) -> None:
    budgets = [64 * KB << power for power in range(12)]
    found = [largest_batch(PROGRAMS[name], budget) for budget in budgets]
    assert found == sorted(found)
    assert found[-1] > found[0]


@pytest.mark.parametrize("budget", [1, KB, 1 << 20, 64 << 20])
def test_the_largest_batch_fits_and_the_next_does_not(budget: int) -> None:
    program = PROGRAMS["trained"]
    found = largest_batch(program, budget)
    assert found == 0 or fits(program, found, budget)
    assert not fits(program, found + 1, budget)


@pytest.mark.parametrize("budget", [KB, 3 << 20, 64 << 20])
def test_the_batch_that_is_advised_fits_in_lowtides_order_and_in_tensorflows(budget: int) -> None:
    program = PROGRAMS["trained"]
    answer = forecast(program, 8, budget)
    found = answer.largest_batch
    assert found is not None
    assert found <= largest_batch(program, budget)
    assert answer.budget == budget
    if found:
        there = forecast(program, found)
        assert there.peak <= budget
        assert there.plain_high <= budget


def test_a_step_that_outgrows_every_budget_has_a_largest_batch_within_reason() -> None:
    tiny = chain(1, shape=(Dim(0, 1),))
    assert largest_batch(tiny, 1 << 40) == 1 << 20
    assert simulate(chain(1, shape=ROW), 1).peak == 2 * KB


def round_once_a_sample() -> Program:
    """A loop that goes round as often as there are samples, over a matrix of one row each."""
    body, condition, draft = Draft(), Draft(), Draft()
    for inside in (body, condition):
        inside.argument("i", SCALAR, "int32")
    more = condition.op("more", "Less", 0, 0, shape=SCALAR, dtype="bool")
    one = body.op("one", "AddV2", 0, 0, shape=SCALAR, dtype="int32")
    x, start = draft.argument("x", ROW), draft.argument("start", SCALAR, "int32")
    made = draft.op("forward", "Neg", x, shape=ROW)
    ended = draft.value(SCALAR, "int32")
    functions = [condition.program(more), body.program(one)]
    draft.ops.append(Op("loop", "While", (start,), (ended,), bodies=(0, 1), trips=Dim(0, 1)))
    return draft.program(made, ended, functions=functions, batch=8)


def test_the_largest_batch_of_a_step_that_runs_longer_for_more_samples_is_by_the_law_and_says_so() -> None:
    program = round_once_a_sample()
    answer = forecast(program, budget=1 << 30)
    assert answer.per_sample and answer.largest_batch
    assert abs(answer.largest_batch * answer.per_sample / (1 << 30) - 1) < 0.2
    (note,) = answer.notes
    assert (note.what, note.treatment) == ("the largest batch", "assumed")
    few = forecast(program, budget=answer.peak * 4)
    assert few.largest_batch and few.largest_batch < 100
    assert not few.notes, "played as it is"
