"""What a state of the backward search still has to pay, at least: shares of a minimum cut.

`cut` says what a budget forces at the first execution of a node v: everything wanted later is held or made once more.
As a flow, each storage wanted later sends its share of that price. A state further back wants fewer of them; the flow
of those alone is still a flow, so their shares less the price of the room at v are still a bound on what is to come.
"""

from __future__ import annotations

from dataclasses import dataclass

from lowtide.plan.bound import TOLERANCE
from lowtide.plan.cut import facts_of_game, shares
from lowtide.plan.game import Game

MOMENTS = 6


@dataclass(frozen=True, slots=True)
class _Moment:
    """`node` is a bit; each share is a bit of its maker, the bits of its readers after `node`, and a price."""

    node: int
    room: float
    shares: tuple[tuple[int, int, float], ...]


class Ahead:
    """Bounds at a few moments of one game for one budget."""

    def __init__(self, game: Game, budget: int, ins: list[int]) -> None:
        readers = [0] * game.end
        for group, makers in enumerate(ins):
            for maker in range(game.end):
                if makers >> maker & 1:
                    readers[maker] |= 1 << group
        self.moments = []
        for share in shares(facts_of_game(game), budget, MOMENTS):
            after = sum(1 << n for n in share.after if n < game.end)
            parts = [(game.maker[s], price * (1 - TOLERANCE)) for s, price in share.price.items() if price > 0]
            parts.sort(key=lambda part: -part[1])
            made = tuple((1 << m, readers[m] & after, price) for m, price in parts)
            self.moments.append(_Moment(1 << share.at, share.room, made))

    def least(self, required: int, remaining: int) -> float:
        """No way on from this state pays less than this."""
        best = 0.0
        for moment in self.moments:
            if not moment.node & remaining:
                continue  # it is behind us
            total = -moment.room
            for maker, readers, price in moment.shares:
                if maker & required or readers & remaining:
                    total += price
            if total > best:
                best = total
        return best
