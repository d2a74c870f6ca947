"""What shape inference finds out: of each tensor, of each graph."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from lowtide.tf.graphs import Tensor


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a tensor: dims (None where unknown), a tensor list's element, a small constant's value.

    `arms`: what it is after each branch, where it holds something else after one than after another.
    """

    dtype: str
    dims: tuple[int | None, ...] | None
    element: Known | None = None
    length: int | None = None
    value: Any = None
    arms: tuple[Known, ...] = ()

    @property
    def complete(self) -> bool:
        return self.dims is not None and None not in self.dims

    @property
    def elements(self) -> int:
        return math.prod(d or 0 for d in self.dims or ())


@dataclass(slots=True)
class Inferred:
    """Every tensor of one graph, the trip counts of its loops, and the same for its bodies.

    `bounded` names the nodes whose shape depends on the data and of which an upper bound is given.
    """

    tensors: dict[Tensor, Known]
    bounded: set[str] = field(default_factory=set)
    trips: dict[str, int | None] = field(default_factory=dict)
    bodies: dict[str, Inferred] = field(default_factory=dict)
