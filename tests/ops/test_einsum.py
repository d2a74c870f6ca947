"""Which tensors Einsum's kernel copies; seen on TensorFlow's allocator in attention layers and their gradients."""

from __future__ import annotations

import pytest

from lowtide.ops.einsum import copies


@pytest.mark.parametrize(
    ("equation", "operands", "product"),
    [
        ("BTNH,BSNH->BNTS", (True, True), False),
        ("BNTS,BSNH->BTNH", (False, True), True),
        ("BTNH,BNTS->BSNH", (True, False), True),
        ("BNTS,BTNH->BSNH", (False, True), True),
        ("ab,bc->ac", (False, False), False),
        ("ab,cb->ac", (False, False), False),
        ("ba,bc->ac", (False, False), False),
        ("ab,bc->ca", (False, False), True),
        ("abc->abc", (False,), False),
    ],
)
def test_operands_and_products_that_are_not_in_order_are_copied(
    equation: str, operands: tuple[bool, ...], product: bool
) -> None:
    assert copies(equation) == (operands, product)


@pytest.mark.parametrize("equation", ["...ab,...bc->...ac", "aab,bc->ac", "ab,bc", "ab,bc,cd->ad"])
def test_what_the_rules_do_not_cover_is_not_guessed(equation: str) -> None:
    assert copies(equation) is None
