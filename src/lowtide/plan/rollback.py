"""Many lifetimes ended at once: what to drop together at a moment and make again after it, as a minimum cut.

Values that are cheap to have again only together, since they are made from the same things, are no bargain one at a
time: the first to go has to pay for all that they share, and may need more bytes than it frees. So take everything
idle at a moment. Each storage is held, for a price a byte, or its maker executes once more, for its cost, and
then the same holds for what that reads. The cheapest such choice is a minimum cut (the one of `cut`, without the
bound); a high price rolls back to the very beginning, a low one drops next to nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from random import Random

from lowtide.plan.game import Game
from lowtide.plan.moves import may_execute_at
from lowtide.plan.tape import Tape

PARTS = 1 << 20  # the mean cost of a group becomes a whole number of this many parts
ENDLESS = 1 << 50
PRICES = (-1.0, 2.0)  # powers of ten between which the price of a byte is drawn, in mean costs of one
NOISE = 0.5  # how far prices of single storages vary, as a power of ten either way: other prices, other choices


class Rollback:
    """The cut of one game. Arcs are built once; only what is wanted, and the price of holding it, changes."""

    def __init__(self, game: Game) -> None:
        from ortools.graph.python import max_flow

        self.game, self.flow = game, max_flow.SimpleMaxFlow()
        mean = sum(game.cost) / max(1, game.end) or 1.0
        self.unit = PARTS / mean
        self.byte = sum(game.cost) / max(1, sum(game.size)) * self.unit
        add = self.flow.add_arc_with_capacity
        groups, place = range(game.end), 2 + game.end  # 0 is the source, 1 the sink; groups; then storages
        self.wanted = [add(0, place + s, 0) for s in range(len(game.size))]
        self.held = [add(place + s, 2 + maker, 0) for s, maker in enumerate(game.maker)]
        for g in groups:
            add(2 + g, 1, ENDLESS if game.once[g] else int(game.cost[g] * self.unit))
            for s in game.ins[g]:
                add(2 + g, place + s, ENDLESS)

    def set_prices(self, byte: float, noise: Callable[[], float] = lambda: 1.0) -> None:
        """What holding a byte is worth, in mean costs of one; `noise` is drawn for each storage."""
        for arc, size in zip(self.held, self.game.size, strict=True):
            self.flow.set_arc_capacity(arc, min(ENDLESS, int(byte * self.byte * size * noise())))

    def hold(self, storages: Iterable[int]) -> None:
        """Holding these costs nothing, until prices are set again."""
        for s in storages:
            self.flow.set_arc_capacity(self.held[s], 0)

    def choose(self, wanted: Sequence[int]) -> list[int]:
        """The groups to execute again, in order, if these storages are all wanted later."""
        flow, storages = self.flow, 2 + self.game.end
        for s in wanted:
            flow.set_arc_capacity(self.wanted[s], ENDLESS)
        flow.solve(0, 1)
        again = [n - 2 for n in flow.get_source_side_min_cut() if 2 <= n < storages]
        for s in wanted:
            flow.set_arc_capacity(self.wanted[s], 0)
        return sorted(again)


def idle_and_busy(tape: Tape, key: float) -> tuple[list[int], list[int]]:
    """The storages live during the execution at `key` and read after it: those it does not touch, and the others."""
    idle: list[int] = []
    busy: list[int] = []
    for s, maker in enumerate(tape.game.maker):
        copies, uses = tape.copies[maker], tape.uses[s]
        j, i = bisect_right(copies, key), bisect_right(uses, key)
        if not j or i == len(uses) or (j < len(copies) and copies[j] < uses[i]):
            continue
        touched = copies[j - 1] == key or (i and uses[i - 1] == key)
        (busy if touched else idle).append(s)
    return idle, busy


def roll_back(tape: Tape, cut: Rollback, p: int, rng: Random) -> bool:
    """Execute again, after position `p`, what a cut there says at random prices, each group before it is first read.

    What is touched at `p` is live there whatever is chosen, so that holding it is free.
    """
    key = tape.keys[p]
    idle, busy = idle_and_busy(tape, key)
    cut.set_prices(10 ** rng.uniform(*PRICES), lambda: 10 ** rng.uniform(-NOISE, NOISE))
    cut.hold(busy)
    again = cut.choose(idle)
    for group in reversed(again):
        reads = [uses[i] for s in tape.game.outs[group] if (i := bisect_right((uses := tape.uses[s]), key)) < len(uses)]
        target = tape.before(min(reads)) if reads else 0.0
        if not key < target or not may_execute_at(tape, group, target):
            return False
        tape.insert(group, target)
    return bool(again)
