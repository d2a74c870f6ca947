"""Levels are what summing the buffers alive at each moment gives, and thinning loses no peak."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.program import Program
from lowtide.simulate import CATEGORIES, simulate
from lowtide.simulate.levels import levels, thinned
from tests.drafts import kept_for_backward, random_programs


@given(random_programs())
@settings(max_examples=40, deadline=None)
def test_levels_are_the_sums_of_what_is_alive(program: Program) -> None:
    timeline = simulate(program)
    found = levels(timeline)
    for i, moment in enumerate(found.moments):
        alive = timeline.alive_at(moment)
        for category in CATEGORIES:
            assert found.by_category[category][i] == sum(b.bytes for b in alive if b.category == category)


def test_few_points_still_hold_the_peak_and_the_ends() -> None:
    timeline = simulate(kept_for_backward(60), 64)
    every, few = levels(timeline, 10**6), levels(timeline, 20)
    assert len(few.moments) < 30 < len(every.moments)
    assert max(few.totals) == max(every.totals)
    assert timeline.peak_at in few.moments
    assert (few.moments[0], few.moments[-1]) == (every.moments[0], every.moments[-1])


def test_each_moment_names_the_op_that_allocated_last() -> None:
    timeline = simulate(kept_for_backward(6), 64)
    found = levels(timeline)
    at_peak = found.makers[found.moments.index(timeline.peak_at)]
    assert at_peak == timeline.peak_maker


@given(st.lists(st.integers(0, 100), min_size=1, max_size=400), st.integers(2, 50))
def test_thinning_keeps_order_and_extremes(values: list[int], points: int) -> None:
    kept = thinned(values, points)
    assert kept == sorted(set(kept))
    assert max(values[i] for i in kept) == max(values)
    assert min(values[i] for i in kept) == min(values)
    assert len(kept) <= max(points, len(values) if len(values) <= points else points + 3)
