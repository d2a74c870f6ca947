"""A plain game read from its end: a state is the set of groups whose values are read later, and nothing more.

Going one execution back, its group is no longer required and what it reads is. The end is required first, nothing at
all last. A group may go back once for free; if one that is still required reads it, directly or not, it will be
required once more: that step is a recomputation, and costs. Sets of groups are whole numbers, a bit a group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lowtide.plan.game import Game


def plain(game: Game) -> bool:
    """Whether the rules of `game` are those of the papers: one value a group, all may repeat, data the only order."""
    ordered = any(game.after) or any(game.closers) or any(game.reuse)
    return not ordered and not any(game.once[: game.end]) and all(len(outs) <= 1 for outs in game.outs)


class Backward:
    """One plain game within one budget: its tables, and the steps back that are never wrong."""

    def __init__(self, game: Game, budget: int) -> None:
        self.game, self.room = game, budget - game.resident
        self.size = [sum(game.size[s] for s in outs) for outs in game.outs]
        self.ins: list[int] = []
        self.above: list[int] = []
        for group in range(game.end):
            makers = [game.maker[s] for s in game.ins[group]]
            self.ins.append(set_of(makers))
            self.above.append(self.ins[-1] | union(self.above[m] for m in makers))
        self.bytes_of = {0: 0}
        self.byte = sum(game.cost) / max(1, sum(game.size))  # the mean cost of one

    def start(self) -> tuple[int, int, int, tuple[int, ...]]:
        """What is required at the end: what is kept, and every group that nobody reads, since it has to execute."""
        game = self.game
        kept = [game.maker[s] for s in game.ins[game.end]]
        unread = [g for g in range(game.end) if not any(game.readers[s] for s in game.outs[g])]
        required = set_of((*kept, *unread))
        return self.settle(required, self.bytes(required))

    def bytes(self, groups: int) -> int:
        known = self.bytes_of.get(groups)
        if known is None:
            known = self.bytes_of[groups] = sum(self.size[g] for g in members(groups))
        return known

    def ancestors(self, groups: int) -> int:
        """All that these read, directly or not."""
        out, above = 0, self.above
        while groups:
            group = groups.bit_length() - 1
            out |= above[group]
            groups ^= 1 << group
        return out

    def settle(self, required: int, held: int) -> tuple[int, int, int, tuple[int, ...]]:
        """Take every step that is free and needs no more bytes than it frees: any row can be changed to do so."""
        ins, size, scratch, room = self.ins, self.size, self.game.scratch, self.room
        steps: list[int] = []
        while True:
            ancestors = self.ancestors(required)
            free = required & ~ancestors
            while free:
                low = free & -free
                free ^= low
                group = low.bit_length() - 1
                new = ins[group] & ~required
                more = self.bytes(new)
                if more <= size[group] and held + more + scratch[group] <= room:
                    required = required ^ low | new
                    held += more - size[group]
                    steps.append(group)
                    break
            else:
                return required, held, ancestors, tuple(steps)


Path = dict[int, tuple[int, tuple[int, ...]]]  # how a state was reached: from which, by which steps; first from -1


def row_of(path: Path) -> tuple[int, ...]:
    """The steps from the empty set to the end: backwards twice, so forwards in time."""
    out: list[int] = []
    state = 0
    while state >= 0:
        state, steps = path[state]
        out.extend(reversed(steps))
    return tuple(out)


def set_of(groups: Iterable[int]) -> int:
    return union(1 << g for g in groups)


def union(sets: Iterable[int]) -> int:
    out = 0
    for groups in sets:
        out |= groups
    return out


def members(groups: int) -> Iterator[int]:
    while groups:
        low = groups & -groups
        yield low.bit_length() - 1
        groups ^= low
