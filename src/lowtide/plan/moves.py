"""Moves on a Tape: break a lifetime, drop a recomputation, put an execution elsewhere. Each is legal or does nothing.

A move reports whether it changed anything; the caller weighs the new state and undoes it through the log. None
of them looks at the budget except to choose where to try.
"""

from __future__ import annotations

from bisect import bisect_left
from random import Random

from lowtide.plan.tape import END, Tape


def first(tape: Tape, group: int) -> float:
    return tape.copies[group][0]


def may_execute_at(tape: Tape, group: int, key: float) -> bool:
    """Whether `group`, already executed before `key`, may execute again there."""
    game = tape.game
    if game.once[group] or not tape.copies[group] or tape.copies[group][0] >= key:
        return False
    return all(key < tape.copies[w][0] for w in game.closers[group])


def recompute(tape: Tape, group: int, before: float, rng: Random, weight: float) -> bool:
    """Execute `group` again just before `before`, and the makers of its inputs where holding them costs more.

    `weight` is the price of a byte above the budget for one execution. Gives up, for the caller to undo, when
    the log passes `tape.most` or the cost `tape.dearest`.
    """
    key = tape.before(before)
    if not key or not may_execute_at(tape, group, key):
        return False
    tape.insert(group, key)
    if len(tape.log) > tape.most or tape.cost > tape.dearest:
        return False
    game = tape.game
    for s in game.ins[group]:
        maker = game.maker[s]
        if game.size[s] and not game.once[maker]:
            price = weight * held_over(tape, s, key)
            if price > game.cost[maker] * rng.random() * 2 and price > 0:
                recompute(tape, maker, key, rng, weight)
                if len(tape.log) > tape.most or tape.cost > tape.dearest:
                    return False
    return True


def held_over(tape: Tape, s: int, key: float) -> int:
    """Bytes above the budget, summed over executions, that holding `s` idle until its read at `key` causes."""
    low, _ = gap(tape, s, key)
    return tape.held(bisect_left(tape.keys, low) + 1, bisect_left(tape.keys, key), tape.game.size[s])


def gap(tape: Tape, s: int, key: float) -> tuple[float, float | None]:
    """The last event (made or read) of storage `s` before `key`, and its next read if it is live until then."""
    copies, uses = tape.copies[tape.game.maker[s]], tape.uses[s]
    j, i = bisect_left(copies, key), bisect_left(uses, key)
    low = copies[j - 1]
    if i and uses[i - 1] > low:
        low = uses[i - 1]
    alive = i < len(uses) and (j == len(copies) or uses[i] < copies[j])
    return low, uses[i] if alive else None


def drop(tape: Tape, group: int, key: float) -> bool:
    """Do not execute `group` at `key`; then drop, in turn, the repeats that nobody reads any more."""
    if not may_drop(tape, group, key):
        return False
    makers = [tape.game.maker[s] for s in tape.game.ins[group]]
    tape.remove(group, key)
    for maker in makers:
        copies = tape.copies[maker]
        j = 0
        while j < len(copies) and copies[j] < key:
            j += 1
        if len(copies) > 1 and j and tape.unread(maker, copies[j - 1]):
            drop(tape, maker, copies[j - 1])
    return True


def may_drop(tape: Tape, group: int, key: float) -> bool:
    copies = tape.copies[group]
    if len(copies) < 2:
        return False
    if copies[0] != key:
        return True
    if not tape.unread(group, key):
        return False
    return all(first(tape, w) > copies[1] for w in tape.game.before[group])


def window(tape: Tape, group: int, key: float) -> tuple[float, float]:
    """The open interval of keys where the execution at `key` may be instead, between its sibling copies."""
    game, copies = tape.game, tape.copies[group]
    j = copies.index(key)
    low = max((tape.copies[game.maker[s]][0] for s in game.ins[group]), default=0.0)
    high = copies[j + 1] if j + 1 < len(copies) else END
    for w in game.closers[group]:
        high = min(high, tape.copies[w][0])
    for v in game.closes[group]:
        low = max(low, tape.copies[v][-1])
    if j:
        return max(low, copies[j - 1]), high
    for s in game.outs[group]:
        if tape.uses[s]:
            high = min(high, tape.uses[s][0])
    for w in game.after[group]:
        low = max(low, tape.copies[w][0])
    for w in game.before[group]:
        high = min(high, tape.copies[w][0])
    return low, high


def shift(tape: Tape, group: int, key: float, target: float) -> bool:
    """Execute at `target` what executes at `key`. `target` is a fresh key inside `window`."""
    tape.insert(group, target)
    tape.remove(group, key)
    for s in tape.game.ins[group]:
        maker = tape.game.maker[s]
        copies = tape.copies[maker]
        if len(copies) > 1:
            for k in list(copies):
                if len(copies) > 1 and k < max(key, target) and tape.unread(maker, k):
                    drop(tape, maker, k)
    return True


def drag(tape: Tape, p: int, q: int, most: int) -> bool:
    """Move the execution at position `p` to just before the one at `q`, with whatever depends on the move.

    Later: takes along what reads it in between. Earlier: takes along what it reads from in between.
    """
    cluster = _dependents(tape, p, q, most) if p < q else _sources(tape, p, q, most)
    if not cluster:
        return False
    anchor = tape.keys[q]
    if p < q:
        cluster.reverse()
    for group, key in cluster:
        if key not in tape.copies[group]:
            continue  # an earlier shift of this move left it unread, and it is gone
        low, high = window(tape, group, key)
        target = tape.before(anchor)
        if not low < target < high:
            return False
        shift(tape, group, key, target)
        if p < q:
            anchor = target
    return True


def _dependents(tape: Tape, p: int, q: int, most: int) -> list[tuple[int, float]]:
    game = tape.game
    cluster = [(tape.at[p], tape.keys[p])]
    made = set(game.outs[tape.at[p]])
    for i in range(p + 1, q):
        group = tape.at[i]
        if not made.isdisjoint(game.ins[group]):
            cluster.append((group, tape.keys[i]))
            if len(cluster) > most:
                return []
            made.update(game.outs[group])
    return cluster


def _sources(tape: Tape, p: int, q: int, most: int) -> list[tuple[int, float]]:
    game = tape.game
    cluster = [(tape.at[p], tape.keys[p])]
    needed = {game.maker[s] for s in game.ins[tape.at[p]]}
    for i in range(p - 1, q - 1, -1):
        group = tape.at[i]
        if group in needed:
            cluster.append((group, tape.keys[i]))
            if len(cluster) > most:
                return []
            needed.update(game.maker[s] for s in game.ins[group])
    cluster.reverse()
    return cluster
