"""Sizes are functions of the batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.program import Dim, Value
from tests.drafts import ROW, SQUARE, Draft, chain, everything


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (Dim(3), "3"),
        (Dim(0, 1), "B"),
        (Dim(0, 4), "4B"),
        (Dim(2, 1), "B+2"),
        (Dim(-1, 2), "2B-1"),
        (Dim(1, 1, 2), "(B+1)/2"),
    ],
)
def test_a_dimension_prints_as_people_write_it(dim: Dim, text: str) -> None:
    assert str(dim) == text


def test_a_part_of_the_batch_is_rounded_down_and_never_less_than_nothing() -> None:
    assert [Dim(0, 1, 2).at(batch) for batch in (1, 2, 7)] == [0, 1, 3]
    assert [Dim(-8, 1).at(batch) for batch in (2, 8, 9)] == [0, 0, 1]


@given(st.lists(st.builds(Dim, st.integers(0, 9), st.integers(0, 9), st.just(1)), max_size=4), st.integers(1, 100))
def test_bytes_are_the_product_of_the_dimensions_at_that_batch(dims: list[Dim], batch: int) -> None:
    expected = 4
    for dim in dims:
        expected *= dim.fixed + dim.per_sample * batch
    assert Value("float32", tuple(dims)).bytes(batch) == expected


@pytest.mark.parametrize(("dtype", "size"), [("bool", 6), ("bfloat16", 12), ("float32", 24), ("complex128", 96)])
def test_an_element_has_the_size_of_its_type(dtype: str, size: int) -> None:
    assert Value(dtype, (Dim(2), Dim(3))).bytes(1) == size


def test_a_value_of_unknown_shape_counts_as_nothing_and_must_be_noted_elsewhere() -> None:
    assert Value("float32", None).bytes(8) == 0


def test_a_scalar_is_one_element() -> None:
    assert Value("int64", ()).bytes(100) == 8


def test_a_program_scales_when_any_size_in_it_or_in_its_bodies_depends_on_the_batch() -> None:
    assert chain(1, shape=ROW).scales
    assert not chain(1, shape=SQUARE).scales
    outer = Draft()
    outer.argument(shape=SQUARE)
    assert outer.program(functions=[chain(1, shape=ROW)]).scales
    assert everything().scales
