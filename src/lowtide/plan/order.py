"""Orders of first execution, at no cost: what frees memory as early as it may, what takes it as late as it may.

Two linear passes over a given order. `early` is what applies an optimizer update as soon as its gradient is
there; `late` is what keeps a mask from being drawn long before it is used. Known to be suboptimal: each looks at
a node alone; finding the order of least peak is NP-hard, and `anneal` searches it where the row is short.
"""

from __future__ import annotations

from collections.abc import Sequence

from lowtide.plan.game import Game
from lowtide.plan.profile import row_profile

NUDGE = 1e-7
GREEDY_LARGEST = 2_000  # groups: `greedy` looks at every node that is ready, each time


def best_order(game: Game, order: Sequence[int]) -> tuple[int, ...]:
    """The one of a few cheap orders with the smallest peak; `order` itself unless another is better."""
    base = tuple(order)
    best, peak = base, max(row_profile(game, base).bytes)
    candidates = [early(game, base), late(game, base), early(game, late(game, base))]
    if game.end <= GREEDY_LARGEST:
        candidates += [late(game, greedy(game, look)) for look in (0.0, 0.6, 1.0)]
    for candidate in candidates:
        height = max(row_profile(game, candidate).bytes)
        if height < peak:
            best, peak = candidate, height
    return best


def early(game: Game, order: Sequence[int]) -> tuple[int, ...]:
    """`order` with every node that frees at least what it makes moved up to just after what it needs."""
    key = [float(len(order))] * len(game.members)
    last = _last_reads(game, order)
    for i, g in enumerate(order):
        freed = sum(game.size[s] for s in game.ins[g] if last[s] == i)
        needs = [game.maker[s] for s in game.ins[g]] + [*game.after[g], *game.closes[g]]
        if freed >= sum(game.size[s] for s in game.outs[g]) and needs:
            key[g] = min(float(i), max(key[m] for m in needs) + NUDGE)
        else:
            key[g] = float(i)
    return tuple(sorted(order, key=key.__getitem__))


def late(game: Game, order: Sequence[int]) -> tuple[int, ...]:
    """`order` with every node that makes more than it frees moved down to just before its first reader."""
    key = [float(len(order))] * len(game.members)
    last = _last_reads(game, order)
    for i in range(len(order) - 1, -1, -1):
        g = order[i]
        freed = sum(game.size[s] for s in game.ins[g] if last[s] == i)
        readers = [r for s in game.outs[g] for r in game.readers[s]] + [*game.before[g], *game.closers[g]]
        if freed < sum(game.size[s] for s in game.outs[g]) and readers:
            key[g] = max(float(i), min(key[r] for r in readers) - NUDGE)
        else:
            key[g] = float(i)
    return tuple(sorted(order, key=key.__getitem__))


def _last_reads(game: Game, order: Sequence[int]) -> list[int]:
    """For each storage the position of its last read."""
    last = [-1] * len(game.size)
    for i, g in enumerate([*order, game.end]):
        for s in game.ins[g]:
            last[s] = i
    return last


def greedy(game: Game, look: float = 0.5) -> tuple[int, ...]:
    """List scheduling: of the nodes that can execute, the one that frees most for what it takes.

    A read that is not the last of a storage counts too, the more the fewer are left: `look` shares of its bytes.
    """
    left = [len(r) for r in game.readers]
    waiting = [len({*(game.maker[s] for s in game.ins[g]), *game.after[g], *game.closes[g]}) for g in range(game.end)]
    unlocks: list[set[int]] = [{r for s in game.outs[g] for r in game.readers[s]} for g in range(game.end)]
    for g in range(game.end):
        unlocks[g].update(game.before[g], game.closers[g])
        unlocks[g].discard(game.end)
    ready = {g for g in range(game.end) if not waiting[g]}
    out: list[int] = []

    def gain(g: int) -> tuple[float, int]:
        freed = sum(game.size[s] * (1.0 if left[s] == 1 else look / left[s]) for s in game.ins[g])
        return freed - sum(game.size[s] for s in game.outs[g]), -g

    while ready:
        g = max(ready, key=gain)
        ready.discard(g)
        out.append(g)
        for s in game.ins[g]:
            left[s] -= 1
        for r in unlocks[g]:
            waiting[r] -= 1
            if not waiting[r]:
                ready.add(r)
    return tuple(out)
