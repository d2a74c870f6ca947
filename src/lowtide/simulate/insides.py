"""What single ops need while they run, and what the tensor lists they leave hold: read off one simulated step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from lowtide.program import Program
from lowtide.simulate.buffers import ALWAYS
from lowtide.simulate.machine import run_watched


class OpNeeds(NamedTuple):
    """`scratch`: bytes an op allocates and frees again before the next op, by op index; `held`: bytes in a tensor
    list and its elements, by the value that is the list."""

    scratch: dict[int, int]
    held: dict[int, int]


def op_needs(program: Program, batch: int, order: Sequence[int]) -> OpNeeds:
    """Loops and branches are seen from outside: the most they had alive at once beyond what they left.

    A loop that is lowered frees what it was given as it goes, if nobody else holds it: then it needs that much less.
    """
    trace, boundaries, _, lists = run_watched(program, batch, order)
    scratch: dict[int, int] = {}
    for index, (start, end) in boundaries.items():
        live = most = left = 0
        for moment in range(start, end):
            buffer, allocated = trace.log[moment]
            size = trace.bytes[buffer]
            live += size if allocated else -size
            most = max(most, live)
            if allocated and (trace.stop[buffer] == ALWAYS or trace.stop[buffer] >= end):
                left += size
        if most > left:
            scratch[index] = most - left
    return OpNeeds(scratch, lists)

