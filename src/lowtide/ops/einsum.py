"""What `Einsum` copies on its way to a matrix product.

The kernel wants each operand's axes in the order batch, free, contracted; contracted before free will do too, and axes
of one kind in the order in which the equation first names them. An operand that is not so is copied, and so is the
product when its axes do not come out in the order asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_BATCH, _FREE, _CONTRACTED, _SUMMED = range(4)
_SWAPPED = (_BATCH, _CONTRACTED, _FREE, _SUMMED)


class Copies(NamedTuple):
    """Which operands are copied, in their order, and whether the product is."""

    operands: tuple[bool, ...]
    product: bool


def copies(equation: str) -> Copies | None:
    """What the kernel copies; None for an equation that this does not follow: an ellipsis, an axis named twice."""
    left, arrow, result = equation.replace(" ", "").partition("->")
    operands = left.split(",")
    if not arrow or "." in equation or not 1 <= len(operands) <= 2:
        return None
    if any(len(set(part)) != len(part) for part in (*operands, result)):
        return None
    number = {label: place for place, label in enumerate(dict.fromkeys("".join(operands)))}
    kind = {label: _kind(label, operands, result) for label in number}
    order = [sorted(part, key=lambda label: (kind[label], number[label])) for part in operands]
    product = [label for label in order[0] if kind[label] == _BATCH]
    product += [label for part in order for label in part if kind[label] == _FREE]
    return Copies(tuple(not _in_order(part, kind, number) for part in operands), product != list(result))


def _kind(label: str, operands: Sequence[str], result: str) -> int:
    everywhere = len(operands) > 1 and all(label in part for part in operands)
    if label in result:
        return _BATCH if everywhere else _FREE
    return _CONTRACTED if everywhere else _SUMMED


def _in_order(part: str, kind: dict[str, int], number: dict[str, int]) -> bool:
    """Whether an operand can be taken as it is, or as its matrices' transposes."""
    straight = [(kind[label], number[label]) for label in part]
    swapped = [(_SWAPPED.index(kind[label]), number[label]) for label in part]
    return straight == sorted(straight) or swapped == sorted(swapped)
