"""Search backwards in time, over what is still needed: finds good rows of small games, and proves optima.

The states are those of `backward`, whatever executed later, and each step must fit the budget: the cheapest way from
the end to the empty set is the optimum, in any order and with any number of repeats.

States are ranked by what they have paid and what a minimum cut says they still will (`ahead`), layer by layer: a layer
is how many groups are done with for good. Each layer expands at most `width` states. If none was left out the
answer is proven; if some were, the cheapest of them is still a lower bound. Passes get wider until the time is up.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from itertools import cycle
from time import monotonic

from lowtide.plan.ahead import Ahead
from lowtide.plan.backward import Backward, Path, plain, row_of
from lowtide.plan.bound import round_up
from lowtide.plan.game import Game

LARGEST = 150  # groups
FIRST_WIDTH = 24
WIDER = 4  # times, from one pair of passes to the next: one by price alone, one that likes states with few bytes
LEAN = (0.1, 1.0, 0.01)  # how strong that liking is, in turn, in mean costs of a byte
LEAN_WIDEST = 400  # a row is known by then, or that liking is of no use but to find one
MOST_STATES = 1_000_000  # kept in one pass: some hundred bytes each

Key = tuple[float, float, float, int, int, int]  # rank, least total, paid, required, held bytes, their ancestors
END = float("inf")


@dataclass(slots=True)
class Outcome:
    """The best row found, if any, with its extra cost, and an extra cost that no row within the budget is below."""

    row: tuple[int, ...] | None = None
    extra: float = END
    bound: float = 0.0


def playable(game: Game) -> bool:
    """Whether `game` is plain, and small enough for a search that is to prove something."""
    return game.end <= LARGEST and plain(game)


class Regress(Backward):
    """The search on one game for one budget."""

    def __init__(self, game: Game, budget: int) -> None:
        super().__init__(game, budget)
        self.ahead = Ahead(game, budget, self.ins)

    def run(self, until: float, known: float = END) -> Outcome:
        """Passes, each wider, until one leaves nothing out. `known` is the extra cost of a row known already."""
        best, width = Outcome(extra=known), FIRST_WIDTH
        leans = cycle(LEAN)
        while monotonic() < until and best.bound < best.extra:
            narrow = width <= LEAN_WIDEST or best.extra == END
            for lean in (0.0, next(leans)) if narrow else (0.0,):
                done = _Pass(self, width, lean * self.byte, best.extra, until).run()
                best.bound = max(best.bound, min(done.bound, best.extra))
                if done.row is not None:
                    best.row, best.extra = done.row, done.extra
                if done.bound >= best.extra or monotonic() > until:
                    break
            width *= WIDER
        best.bound = min(round_up(best.bound, self.game.cost), best.extra)
        return best


class _Pass:
    """One pass through the layers."""

    def __init__(self, game: Regress, width: int, lean: float, worth: float, until: float) -> None:
        self.regress, self.width, self.lean, self.until = game, width, lean, until
        self.worth = worth  # extra cost that a row has to be below
        self.left_out = END
        self.count = game.game.end
        self.layers: list[list[Key]] = [[] for _ in range(self.count + 1)]
        self.paid: dict[int, float] = {}
        self.path: Path = {}
        self.raw: dict[int, float] = {}  # the same before settling, which is dear

    def run(self) -> Outcome:
        required, held, ancestors, steps = self.regress.start()
        self.path[required] = (-1, steps)
        self.reach(required, held, ancestors, 0.0)
        for layer in range(self.count):
            heap = self.layers[layer]
            heapq.heapify(heap)
            self.expand_layer(layer, heap)
            heap.clear()
        if 0 not in self.path or self.paid[0] > self.worth:
            return Outcome(None, END, min(self.left_out, self.worth))
        return Outcome(row_of(self.path), self.paid[0], min(self.left_out, self.paid[0]))

    def expand_layer(self, layer: int, heap: list[Key]) -> None:
        expanded = 0
        while heap:
            _, least, paid, required, held, ancestors = heapq.heappop(heap)
            if paid > self.paid[required] or least >= self.worth:
                continue
            late = expanded % 32 == 0 and (monotonic() > self.until or len(self.paid) > MOST_STATES)
            if late or expanded >= self.width:
                self.left_out = min(self.left_out, least, *(key[1] for key in heap))
                return
            expanded += 1
            self.expand(required, held, ancestors, paid)

    def expand(self, required: int, held: int, ancestors: int, paid: float) -> None:
        """Every step back from one state."""
        game, raw = self.regress, self.raw
        cost, scratch = game.game.cost, game.game.scratch
        left = required
        while left:
            low = left & -left
            left ^= low
            group = low.bit_length() - 1
            new = game.ins[group] & ~required
            held_then = held + game.bytes(new)
            if held_then + scratch[group] > game.room:
                continue
            paid_then = paid + cost[group] if ancestors & low else paid
            then = required ^ low | new
            if paid_then >= self.worth or raw.get(then, END) <= paid_then:
                continue
            raw[then] = paid_then
            then, held_then, above, steps = game.settle(then, held_then - game.size[group])
            if paid_then < self.paid.get(then, END):
                self.path[then] = (required, (group, *steps))
                self.reach(then, held_then, above, paid_then)

    def reach(self, required: int, held: int, ancestors: int, paid: float) -> None:
        self.paid[required] = paid
        if not required:
            self.worth = min(self.worth, paid)
            return
        remaining = required | ancestors
        least = paid + self.regress.ahead.least(required, remaining)
        if least >= self.worth:
            return
        layer = self.count - remaining.bit_count()
        heapq.heappush(self.layers[layer], (least + self.lean * held, least, paid, required, held, ancestors))
