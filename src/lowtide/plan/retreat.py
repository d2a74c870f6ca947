"""A row for a budget that is hard to meet at all: a beam of states backwards in time, with retreats.

Where `regress` takes one step at a time and looks for the cheapest way, this looks for any. The states are those of
`backward`. When memory is nearly full, no single recomputation may help: each asks for more bytes than it frees
before its own inputs are gone as well. So besides the steps that are free a state has *retreats*: everything required
that will be required again is replaced by what a minimum cut (`rollback`) finds cheaper to hold, at a few prices of a
byte, and the steps on the way are taken in the sequence that frees most, as far as they fit.

Each layer, as in `regress`, keeps a few states for each of several opinions on what a byte is worth.
Known to be suboptimal: rows are dear, since what a retreat will save further back is not known when it is taken.
`anneal` makes them cheaper.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from time import monotonic

from lowtide.plan.backward import Backward, Path, members, plain, row_of, set_of
from lowtide.plan.game import Game
from lowtide.plan.rollback import Rollback

LARGEST = 600  # groups
WIDTHS = (3, 12, 48)  # states a layer expands, in one pass after another
CROWDED = 0.6  # of the room: with less held there is no need to retreat
IN_A_ROW = 1  # retreats from one layer
PRICES = (0.1, 0.4, 1.6, 6.4, 25.6)  # of a byte held, in mean costs of one: retreats
OPINIONS = (0.0, 1.0, 10.0)  # on the same, for the ranks of states
TRIES = 5  # budgets, where the one asked for is not met

State = tuple[int, int, int, float]  # required, its bytes, its ancestors, paid
Move = tuple[int, int, float, tuple[int, ...]]  # required then, its bytes, price, steps


def retreats(game: Game) -> bool:
    """Whether this search is for `game`."""
    return game.end <= LARGEST and plain(game)


def lowest_rows(game: Game, budget: int, known: int, until: float) -> list[tuple[int, ...]]:
    """A row within `budget`; if there is none, rows with ever smaller peaks below `known`, by bisection."""
    for width in WIDTHS:
        row = Retreat(game, budget).run(width, until)
        if row is not None:
            return [row]
    low, high, found = budget, known, []
    for _ in range(TRIES):
        middle = (low + high) // 2
        row = Retreat(game, middle).run(WIDTHS[0], until)
        if row is None:
            low = middle
        else:
            high = middle
            found.append(row)
    return found


class Retreat(Backward):
    """The search on one game for one budget."""

    def __init__(self, game: Game, budget: int) -> None:
        super().__init__(game, budget)
        self.scratch = game.scratch
        self.readers = [set_of(r for s in outs for r in game.readers[s]) for outs in game.outs]
        self.cuts = [Rollback(game) for _ in PRICES]
        for cut, price in zip(self.cuts, PRICES, strict=True):
            cut.set_prices(price)

    def run(self, width: int, until: float) -> tuple[int, ...] | None:
        """The cheapest row that one pass finds; None if it finds none, or is late."""
        return _Pass(self, width, until).run()

    def moves(self, required: int, held: int, ancestors: int) -> Iterator[Move]:
        """Every free step that fits; and the retreats, if memory is filling up."""
        for group in members(required & ~ancestors):
            new = self.ins[group] & ~required
            more = self.bytes(new)
            if held + more + self.scratch[group] <= self.room:
                yield required ^ 1 << group | new, held + more - self.size[group], 0.0, (group,)
        if held < CROWDED * self.room:
            return
        wanted = [s for g in members(required & ancestors) for s in self.game.outs[g]]
        seen = {0}
        for cut in self.cuts:
            again = set_of(cut.choose(wanted))
            if again not in seen:
                seen.add(again)
                yield from self.retreat(required, held, again)

    def retreat(self, required: int, held: int, again: int) -> Iterator[Move]:
        """Take the steps `again`, those that free most first, to where fewest bytes are held; nothing if none are."""
        lowest, best, price, steps = held, None, 0.0, []
        ready = self._unread(again & required, again)
        while ready:
            options = [(self.bytes(self.ins[g] & ~required), g) for g in ready]
            fitting = [(more - self.size[g], g) for more, g in options if held + more + self.scratch[g] <= self.room]
            if not fitting:
                break
            net, group = min(fitting)
            required = required ^ 1 << group | self.ins[group]
            again ^= 1 << group
            ready.remove(group)
            ready += self._unread(self.ins[group] & again, again)
            held += net
            price += self.game.cost[group]
            steps.append(group)
            if held < lowest:
                lowest, best = held, (required, held, price, tuple(steps))
        if best is not None:
            yield best

    def _unread(self, groups: int, again: int) -> list[int]:
        """Those of `groups` that none of `again` reads: they may be the next step back."""
        return [g for g in members(groups) if not self.readers[g] & again]


class _Pass:
    """One pass through the layers: a layer is how many groups are done with for good."""

    def __init__(self, game: Retreat, width: int, until: float) -> None:
        self.game, self.until, self.count = game, until, game.game.end
        self.each = max(1, width // len(OPINIONS))
        self.layers: list[dict[int, State]] = [{} for _ in range(self.count + 1)]
        self.paid: dict[int, float] = {}
        self.path: Path = {}

    def run(self) -> tuple[int, ...] | None:
        required, held, ancestors, steps = self.game.start()
        self.reach(required, held, ancestors, 0.0, -1, steps)
        for layer in range(self.count):
            for _ in range(1 + IN_A_ROW):
                fresh = self.layers[layer]
                self.layers[layer] = {}
                for state in self.chosen(fresh):
                    if monotonic() > self.until:
                        return None
                    self.expand(*state)
        return row_of(self.path) if 0 in self.path else None

    def chosen(self, states: dict[int, State]) -> list[State]:
        """For each opinion in turn, the few best by it that none before has chosen."""
        if len(states) <= self.each * len(OPINIONS):
            return list(states.values())
        out: dict[int, State] = {}
        for opinion in OPINIONS:
            price = opinion * self.game.byte
            best = heapq.nsmallest(self.each + len(out), states.values(), key=lambda s: s[3] + price * s[1])
            out |= {s[0]: s for s in [s for s in best if s[0] not in out][: self.each]}
        return list(out.values())

    def expand(self, required: int, held: int, ancestors: int, paid: float) -> None:
        for then, held_then, price, steps in self.game.moves(required, held, ancestors):
            then, held_then, above, more = self.game.settle(then, held_then)
            self.reach(then, held_then, above, paid + price, required, steps + more)

    def reach(self, required: int, held: int, ancestors: int, paid: float, source: int, steps: tuple[int, ...]) -> None:
        if paid < self.paid.get(required, float("inf")):
            self.paid[required] = paid
            self.path[required] = (source, steps)
            layer = self.count - (required | ancestors).bit_count()
            self.layers[layer][required] = (required, held, ancestors, paid)
