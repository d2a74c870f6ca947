"""Proof by exhaustion that no schedule stays within a budget, for small games.

A state is what has executed and what is live. From nothing, every state that a schedule within the budget can
reach is visited; if the end is not among them, there is no such schedule. States are many, so the number visited is
limited, and a search that ran into the limit has proven nothing.
"""

from __future__ import annotations

from lowtide.plan.game import Game

LARGEST = 64  # groups
MOST = 20_000  # states visited


def impossible(game: Game, budget: int, most: int = MOST) -> bool:
    """Whether it is proven that no row stays within `budget`."""
    if not game.exact or game.end > LARGEST:
        return False
    room = budget - game.resident
    everything = (1 << game.end) - 1
    ins, outs = ([_bits(x) for x in table] for table in (game.ins, game.outs))
    first = [_bits((*game.after[g], *game.closes[g])) for g in range(game.end)]
    size = {1 << s: n for s, n in enumerate(game.size)}
    seen, stack = {(0, 0)}, [(0, 0)]
    while stack:
        done, live = stack.pop()
        if done == everything and live & ins[game.end] == ins[game.end]:
            return False
        for after in (*_executed(game, done, live, ins, outs, first, room, size), *_dropped(done, live)):
            if after not in seen:
                seen.add(after)
                stack.append(after)
        if len(seen) > most:
            return False
    return True


def _executed(
    game: Game, done: int, live: int, ins: list[int], outs: list[int], first: list[int], room: int, size: dict[int, int]
) -> list[tuple[int, int]]:
    out = []
    for g in range(game.end):
        again = done >> g & 1
        if live & ins[g] != ins[g] or done & first[g] != first[g] or (again and game.once[g]):
            continue
        if any(done >> w & 1 for w in game.closers[g]):
            continue
        after = live | outs[g]
        saved = sum(n for n, _ in game.reuse[g])  # supposing that every buffer that may be handed on is
        if _bytes(after, size) + game.scratch[g] - saved <= room:
            out.append((done | 1 << g, after))
    return out


def _dropped(done: int, live: int) -> list[tuple[int, int]]:
    out, left = [], live
    while left:
        low = left & -left
        out.append((done, live ^ low))
        left ^= low
    return out


def _bytes(live: int, size: dict[int, int]) -> int:
    total = 0
    while live:
        low = live & -live
        total += size[low]
        live ^= low
    return total


def _bits(positions: tuple[int, ...]) -> int:
    out = 0
    for p in positions:
        out |= 1 << p
    return out
