"""A Tape for long rows: the profile in a NumPy array, so that changing a long lifetime is one vector operation.

Below a few hundred executions a Python list is faster, which is why there are two. NumPy comes with OR-Tools;
it is imported only here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lowtide.plan.game import Game
from lowtide.plan.tape import Tape

WIDE = 260  # groups


def tape_for(game: Game, order: Sequence[int], budget: int) -> Tape:
    """The faster of the two for a game of this size."""
    return WideTape(game, order, budget) if game.end > WIDE else Tape(game, order, budget)


class WideTape(Tape):
    """`over` is the filled part, in front, of `_room`."""

    __slots__ = ("_length", "_most", "_np", "_room", "_sum")

    over: Any
    _room: Any

    def __init__(self, game: Game, order: Sequence[int], budget: int) -> None:
        import numpy

        self._np: Any = numpy
        self._most: Any = numpy.maximum.reduce  # the method calls cost as much again as the work
        self._sum: Any = numpy.add.reduce
        super().__init__(game, order, budget)

    def load(self, order: Sequence[int]) -> None:
        super().load(order)
        self._fill(self.over)

    def set_budget(self, budget: int) -> None:
        self.over += self.budget - budget
        self.budget = budget
        self.excess = int(self._np.maximum(self.over, 0).sum())

    def highest(self, low: int, high: int) -> int:
        return int(self.over[low:high].max())

    def hottest(self) -> int:
        return int(self.over.argmax())

    def held(self, low: int, high: int, size: int) -> int:
        part = self.over[low:high]
        if low >= high or self._most(part) <= 0:
            return 0
        return int(self._sum(self._np.minimum(part[part > 0], size)))

    def _fill(self, values: Any) -> None:
        self._length = len(values)
        self._room = self._np.zeros(2 * self._length + 64, dtype=self._np.int64)
        self._room[: self._length] = values
        self.over = self._room[: self._length]

    def _open(self, p: int, base: int) -> None:
        if self._length == len(self._room):
            self._fill(self.over)
        n, room = self._length, self._room
        room[p + 1 : n + 1] = room[p:n]
        room[p] = base
        self._length = n + 1
        self.over = room[: n + 1]

    def _shut(self, p: int) -> None:
        n, room = self._length, self._room
        room[p : n - 1] = room[p + 1 : n]
        self._length = n - 1
        self.over = room[: n - 1]

    def _add(self, low: int, high: int, delta: int) -> None:
        if low >= high:
            return
        part = self.over[low:high]
        highest = self._most(part)
        if highest > 0:
            self.excess -= int(self._sum(part[part > 0]))
        part += delta
        if highest + delta > 0:
            self.excess += int(self._sum(part[part > 0]))
