"""Sizes as functions of the batch: what fits three probes is checked at every other batch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.program import Dim
from lowtide.tf.lines import fit_nearby, fit_shape, probe_batches

Size = Callable[[int], int]


def fitted(size: Size, own: int, *asked: int) -> Dim | None:
    batches = probe_batches(own, asked)
    shape = fit_shape([(size(batch),) for batch in batches], batches)
    return None if shape is None else shape[0]


@given(own=st.integers(1, 512), slope=st.integers(0, 9), fixed=st.integers(0, 50))
def test_a_line_is_found_from_any_batch(own: int, slope: int, fixed: int) -> None:
    dim = fitted(lambda batch: fixed + slope * batch, own)
    assert dim == Dim(fixed, slope)


@given(own=st.integers(4, 512), divisor=st.integers(2, 4), batch=st.integers(1, 2000))
def test_part_of_a_batch_is_right_or_one_too_many_everywhere(own: int, divisor: int, batch: int) -> None:
    dim = fitted(lambda batch: batch // divisor, own)
    assert dim is None or 0 <= dim.at(batch) - batch // divisor <= 1


@pytest.mark.parametrize("own", [16, 25, 64])
def test_half_of_a_batch_has_a_law(own: int) -> None:
    dim = fitted(lambda batch: batch // 2, own)
    assert dim is not None
    assert dim.at(own) == own // 2
    assert dim.at(1000) == 500


@pytest.mark.parametrize("size", [lambda b: min(b, 8), lambda b: b * b, lambda b: abs(b - 30)])
def test_what_is_no_line_is_not_made_one_and_is_right_at_the_two_largest_batches(size: Size) -> None:
    assert fitted(size, 24) is None
    batches = probe_batches(24, (100,))
    near = fit_nearby([(size(batch),) for batch in batches], batches)
    assert near is not None
    assert [near[0].at(batch) for batch in (48, 100)] == [size(48), size(100)]


def test_rows_beyond_the_eighth_are_none_at_a_small_batch() -> None:
    dim = fitted(lambda batch: max(0, batch - 8), 16)
    assert dim is not None
    assert [dim.at(batch) for batch in (1, 8, 9, 500)] == [0, 0, 1, 492]


def test_unknown_sizes_and_ranks_have_no_law() -> None:
    assert fit_shape([(2, None), (3, 4)], (2, 3)) is None
    assert fit_shape([(2,), (3, 4)], (2, 3)) is None
    assert fit_shape([None, (3,)], (2, 3)) is None


def test_the_scripts_own_batch_a_multiple_and_the_one_asked_for_are_probed() -> None:
    assert probe_batches(24, (7,)) == (2, 7, 24, 48)
    assert probe_batches(6) == (2, 6, 48)
    assert probe_batches(1) == (2, 3, 7)
