"""First rows for steps that are nearly a chain: dynamic programming over articulation points.

A training step goes forward through a chain of blocks and back through it. The ends of the blocks are articulation
points of the forward part: all that is read later inside the forward pass goes through them. With the input of
blocks s..t in memory and m bytes besides, the backward pass of these blocks costs nothing extra if all their values
fit at once; else some block j is chosen, s..j is executed and only its end is kept, the blocks after j are dealt with,
and then s..j anew. That is the classical recursion for heterogeneous chains (Revolve, Rotor). Blocks
that look alike are solved once: a stretch of blocks is known by what its blocks cost and hold, not by where it is.

Known to be suboptimal: a block is executed again as a whole, bytes come in a hundred steps, blocks are joined if there
are many, and only graphs whose backward pass mirrors the forward one have anything to gain. The row is a start for
`anneal`, which knows none of these limits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from lowtide.plan.evict import trim
from lowtide.plan.game import Game
from lowtide.plan.profile import Profile, row_profile

LEVELS = 100  # steps of bytes
FEWEST, MOST = 4, 64  # blocks
ALIKE_MOST = 400  # blocks, where most are alike
MINUTE = 1 / 1000  # of the largest storage: what is smaller does not tie blocks together
END = float("inf")

Look = tuple[float, int, int, int, int]  # a block from outside: cost, bytes kept, most forward, most, of its end


@dataclass(frozen=True, slots=True)
class Block:
    """Positions of the base row that a block has in the forward and in the backward pass, and its look."""

    forward: range
    backward: range
    below: int  # bytes that the blocks before it keep
    look: Look


def chain_row(game: Game, order: Sequence[int], budget: int) -> tuple[int, ...] | None:
    """A row for `budget` from the recursion; None if the game is no chain or the recursion says that none fits."""
    profile = row_profile(game, order)
    blocks = find_blocks(game, order, profile)
    if len(blocks) < FEWEST:
        return None
    first = blocks[0]
    steps = _Recursion(blocks, budget - first.below).steps()
    if steps is None:
        return None
    parts = [range(first.forward.start), *steps, range(first.backward.stop, len(order))]
    return trim(game, _written_out(game, order, parts))


def _written_out(game: Game, order: Sequence[int], parts: list[range]) -> list[int]:
    """The groups at these positions; what may not execute again does not."""
    out: list[int] = []
    seen: set[int] = set()
    for group in (order[p] for part in parts for p in part):
        if group in seen and (game.once[group] or any(w in seen for w in game.closers[group])):
            continue
        seen.add(group)
        out.append(group)
    return out


def find_blocks(game: Game, order: Sequence[int], profile: Profile) -> list[Block]:
    """The blocks of a step that goes forward and back; few or none if it does not."""
    turn = max(range(len(order)), key=lambda p: (profile.bytes[p], -p))
    points = _articulation(game, order, profile, turn)
    if len(points) <= FEWEST:
        return []
    begins = _going_back(game, order, profile, points, turn)
    points, begins = _joined(points, begins)
    held = _held(game, order, profile, points[-1])
    return [_block(game, order, profile, points, begins, held, i) for i in range(len(points) - 1)]


def _articulation(game: Game, order: Sequence[int], profile: Profile, turn: int) -> list[int]:
    """Positions up to `turn` whose value is the only one, but for tiny ones, read later within the forward pass."""
    tiny = max(game.size, default=0) * MINUTE
    reach = [0] * (turn + 2)  # how many storages are on their way past a position
    for s, events in enumerate(profile.events):
        inside = [p for p, _ in events if p <= turn]
        if game.size[s] > tiny and inside:
            reach[inside[0]] += 1
            reach[inside[-1]] -= 1
    out, open_now = [], 0
    for p in range(turn):
        open_now += reach[p]
        made = [s for s in game.outs[order[p]] if game.size[s] > tiny]
        if open_now == 1 and len(made) == 1 and profile.events[made[0]][-1][0] > p:
            out.append(p)
    return out


def _going_back(game: Game, order: Sequence[int], profile: Profile, points: list[int], turn: int) -> list[int]:
    """For each point, the first position after `turn` that reads what was made before it and not passed on."""
    begins = [len(order)] * len(points)
    for p in range(turn + 1, len(order)):
        for s in game.ins[order[p]]:
            made = profile.events[s][0][0]
            if made <= points[-1]:
                i = bisect_right(points, made - 1)  # the point at or after what made it
                i += points[i] == made  # the end of a block is held for the next one
                if i < len(points) and p < begins[i]:
                    begins[i] = p
    for i in range(1, len(points)):
        begins[i] = min(begins[i], begins[i - 1])
    return begins


def _joined(points: list[int], begins: list[int]) -> tuple[list[int], list[int]]:
    """Only the points that cut the backward pass too, and of many only as many as the recursion can deal with."""
    keep = [i for i in range(len(points)) if i == 0 or begins[i] < begins[i - 1]]
    strides = {(points[b] - points[a], begins[a] - begins[b]) for a, b in pairwise(keep)}
    most = ALIKE_MOST if len(strides) * 8 < len(keep) else MOST
    every = -(-len(keep) // most)
    keep = keep[::every]
    return [points[i] for i in keep], [begins[i] for i in keep]


def _held(game: Game, order: Sequence[int], profile: Profile, last: int) -> list[int]:
    """For each position up to `last`, the bytes made up to there that are read after `last`."""
    out, total = [], game.resident
    for p in range(last + 1):
        total += sum(game.size[s] for s in game.outs[order[p]] if profile.events[s][-1][0] > last)
        out.append(total)
    return out


def _block(
    game: Game, order: Sequence[int], profile: Profile, points: list[int], begins: list[int], held: list[int], i: int
) -> Block:
    """Block i lies between two points; its look is taken from the base row. The last one has the turn too."""
    forward = range(points[i] + 1, points[i + 1] + 1)
    backward = range(begins[i + 1] if i + 2 < len(points) else points[-1] + 1, begins[i])
    below = held[points[i]]
    most = max(profile.bytes[p] for part in (forward, backward) for p in part) - below
    look = (
        sum(game.cost[order[p]] for p in forward),
        held[points[i + 1]] - below,
        max(profile.bytes[p] for p in forward) - below,
        most,
        sum(game.size[s] for s in game.outs[order[points[i + 1]]]),
    )
    return Block(forward, backward, below, look)


class _Recursion:
    """Tables by stretch of blocks: for each level of bytes the extra cost, and after how many blocks to cut."""

    def __init__(self, blocks: list[Block], room: int) -> None:
        import numpy

        self.np: Any = numpy
        self.blocks, self.unit = blocks, max(1, room // LEVELS)
        self.names: dict[tuple[int, Look], int] = {}  # a stretch and one more block -> a longer stretch
        self.cost: list[Any] = [None]
        self.cut: list[Any] = [None]
        self.name = [[0] * (len(blocks) + 1) for _ in blocks]  # of the stretch [s, t)
        for length in range(1, len(blocks) + 1):
            for s in range(len(blocks) - length + 1):
                self._stretch(s, s + length)

    def _stretch(self, s: int, t: int) -> None:
        key = (self.name[s][t - 1], self.blocks[t - 1].look)
        known = self.names.get(key)
        if known is None:
            known = self.names[key] = len(self.cost)
            self._solve(s, t)
        self.name[s][t] = known

    def _solve(self, s: int, t: int) -> None:
        """The cheapest way through blocks [s, t) for each level: keep all, or cut somewhere."""
        np = self.np
        cost, cut = np.full(LEVELS + 1, END), np.full(LEVELS + 1, -1)
        kept, need, paid, high = 0, 0, 0.0, 0
        for i in range(s, t):
            again, holds, forward, most, end = self.blocks[i].look
            need, kept = max(need, kept + most), kept + holds
            paid, high = paid + again, max(high, forward)
            low = max(self._levels(end), self._levels(high))
            if i + 1 == t or low > LEVELS:
                continue
            after = self.cost[self.name[i + 1][t]][low - self._levels(end) : LEVELS + 1 - self._levels(end)]
            total = paid + after + self.cost[self.name[s][i + 1]][low:]
            better = total < cost[low:]
            cost[low:][better] = total[better]
            cut[low:][better] = i + 1 - s
        all_kept = min(self._levels(need), LEVELS + 1)
        cost[all_kept:], cut[all_kept:] = 0.0, -1
        self.cost.append(cost)
        self.cut.append(cut)

    def _levels(self, size: int) -> int:
        return int(-(-max(0, size) // self.unit))

    def steps(self) -> list[range] | None:
        """The stretches of the base row to execute, in order, or None if no way fits."""
        if self.cost[self.name[0][len(self.blocks)]][LEVELS] == END:
            return None
        out: list[range] = []
        todo = [(0, len(self.blocks), LEVELS)]
        while todo:
            s, t, level = todo.pop()
            at = s + int(self.cut[self.name[s][t]][level])
            if at < s:
                out += [block.forward for block in self.blocks[s:t]]
                out += [block.backward for block in reversed(self.blocks[s:t])]
                continue
            out += [block.forward for block in self.blocks[s:at]]
            todo.append((s, at, level))
            todo.append((at, t, level - self._levels(self.blocks[at - 1].look[-1])))
        return out
