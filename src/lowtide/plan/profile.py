"""The memory of one row, replayed at once: bytes at each position, and every storage's makes and reads."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from lowtide.plan.game import Game

Event = tuple[int, bool]  # position, and whether the storage was made there (else read)
BLOCK = 256


class Profile:
    """`bytes[p]` is live while `row[p]` executes. `events[s]` are in order; `first[g]` is a first position."""

    __slots__ = ("bytes", "events", "first")

    def __init__(self, live: list[int], events: list[list[Event]], first: list[int]) -> None:
        self.bytes, self.events, self.first = live, events, first

    def live(self, s: int, at: int) -> bool:
        """Whether `s` is held through the moment just before position `at`."""
        events = self.events[s]
        i = bisect_left(events, (at, False))
        return i < len(events) and not events[i][1] and i > 0

    def last_event(self, s: int, at: int) -> int:
        events = self.events[s]
        i = bisect_left(events, (at, False))
        return events[i - 1][0] if i else -1

    def blocks(self, budget: int) -> Room:
        return Room(self.bytes, budget)


class Room:
    """Whether more bytes fit everywhere in a stretch: maxima of blocks, so that long stretches cost little."""

    __slots__ = ("budget", "bytes", "maxima")

    def __init__(self, live: list[int], budget: int) -> None:
        self.bytes, self.budget = live, budget
        self.maxima = [max(live[i : i + BLOCK]) for i in range(0, len(live), BLOCK)]

    def room(self, low: int, high: int, size: int) -> bool:
        """Whether `size` more bytes fit on (low, high)."""
        low, limit = low + 1, self.budget - size
        a, b = -(-low // BLOCK), high // BLOCK
        if a >= b:
            return max(self.bytes[low:high], default=0) <= limit
        if max(self.maxima[a:b]) > limit:
            return False
        ends = self.bytes[low : a * BLOCK] + self.bytes[b * BLOCK : high]
        return max(ends, default=0) <= limit


def row_profile(game: Game, row: Sequence[int]) -> Profile:
    """Replay `row` (without the artificial end, which is added)."""
    events: list[list[Event]] = [[] for _ in game.size]
    first = [len(row)] * len(game.members)
    full = [*row, game.end]
    for p, group in enumerate(full):
        first[group] = min(first[group], p)
        for s in game.ins[group]:
            events[s].append((p, False))
        for s in game.outs[group]:
            events[s].append((p, True))
    delta = [0] * (len(full) + 1)
    dies: set[tuple[int, int]] = set()
    for s, made in enumerate(events):
        size = game.size[s]
        for i, (p, is_made) in enumerate(made):
            if is_made:
                delta[p] += size
            if i + 1 == len(made) or made[i + 1][1]:
                delta[p + 1] -= size
                dies.add((s, p))
    live, out = game.resident, []
    for p, group in enumerate(full):
        live += delta[p]
        out.append(live + game.scratch[group] - (_saved(game, group, p, dies) if game.reuse[group] else 0))
    return Profile(out, events, first)


def _saved(game: Game, group: int, p: int, dies: set[tuple[int, int]]) -> int:
    saved, taken = 0, set()
    for size, candidates in game.reuse[group]:
        for s in candidates:
            if s not in taken and (s, p) in dies:
                taken.add(s)
                saved += size
                break
    return saved
