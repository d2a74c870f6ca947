"""A first plan for programs of any size: drop what is idle longest and cheapest to have again, in rounds.

Belady's rule with prices. Each round replays the row, takes the highest place above the budget, and ends the
lifetimes that pass it idle, those with the least recomputation per byte first, until it fits; then the next
highest. The row is then rebuilt with the recomputations just before the next uses, and the round begins again.
Rounds are linear in the row but for sorting, so 70,000 nodes are fine.

Known to be suboptimal: the bytes that recomputing itself needs are only seen a round later, and nothing picked
in an earlier round is taken back; `anneal` does that where the row is short enough.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise
from time import monotonic

from lowtide.plan.cut import Cut
from lowtide.plan.game import Game
from lowtide.plan.profile import Profile, row_profile

CHAIN = 40  # recomputations one dropped storage may ask for before it counts as too dear
ROUNDS = 60
PATIENCE = 6  # rounds without progress
LONGEST = 3  # times the first row: a row that grows beyond this is going nowhere

Gap = tuple[int, int, int]  # storage, idle after this position, read again at this one


def fit(game: Game, order: Sequence[int], budget: int, deadline: float, cut: Cut | None = None) -> tuple[int, ...]:
    """A row within `budget` if the rounds find one, else the row that came nearest.

    A `cut` says what to drop in the first round.
    """
    row, best, nearest, idle = tuple(order), tuple(order), float("inf"), 0
    if cut is not None and cut.drop:
        profile = row_profile(game, row)
        row = trim(game, _Rebuild(game, row, profile, _gaps_at(game, profile, cut), budget).row)
    for _ in range(ROUNDS):
        profile = row_profile(game, row)
        excess = sum([x - budget for x in profile.bytes if x > budget])
        if excess < nearest:
            best, nearest, idle = row, excess, 0
        else:
            idle += 1
        if excess == 0 or idle > PATIENCE or len(row) > LONGEST * len(order) or monotonic() > deadline:
            break
        picked = _Picker(game, row, profile, budget).pick(deadline)
        if not picked:
            break
        row = trim(game, _Rebuild(game, row, profile, picked, budget).row)
    return best


def _gaps_at(game: Game, profile: Profile, cut: Cut) -> list[Gap]:
    """What the cut drops, as the gaps around its moment."""
    at, out = profile.first[cut.at], []
    for s in cut.drop:
        events = profile.events[s]
        i = bisect_left(events, (at, False))
        if 0 < i < len(events) and events[i][0] > at and may_be_made(game, profile, s, events[i][0]):
            out.append((s, events[i - 1][0], events[i][0]))
    return out


def may_be_made(game: Game, profile: Profile, s: int, at: int) -> bool:
    """Whether the maker of `s` may still execute at position `at`."""
    maker = game.maker[s]
    return not game.once[maker] and all(profile.first[w] >= at for w in game.closers[maker])


class _Picker:
    """Chooses the gaps to end in one round."""

    def __init__(self, game: Game, row: Sequence[int], profile: Profile, budget: int) -> None:
        import numpy

        self.game, self.row, self.profile = game, row, profile
        self.over = numpy.array(profile.bytes) - budget
        self.dropped: set[int] = set()
        self.known: dict[tuple[int, int], float] = {}  # prices per byte seen so far; they only rise
        self.gaps = self._gaps()
        ends = numpy.array(self.gaps, dtype=numpy.int64).reshape(-1, 3)
        self.begins, self.stops = ends[:, 1], ends[:, 2]

    def _gaps(self) -> list[Gap]:
        """Idle stretches of recomputable storages that pass a place above the budget."""
        hot = list(accumulate((self.over > 0).tolist(), initial=0))
        game, out = self.game, []
        for s, events in enumerate(self.profile.events):
            if game.size[s] == 0:
                continue
            for (a, _), (b, made) in pairwise(events):
                if not made and b > a + 1 and hot[b] > hot[a + 1] and may_be_made(game, self.profile, s, b):
                    out.append((s, a, b))
        return out

    def pick(self, deadline: float) -> list[Gap]:
        picked: list[Gap] = []
        over = self.over
        while True:
            p = int(over.argmax())
            if over[p] <= 0:
                return picked
            chosen = self._cover(p, int(over[p]))
            for s, a, b in chosen:
                over[a + 1 : b] -= self.game.size[s]
            if over[p] > 0:
                over[p] = 0  # nothing more can be done for this place in this round
            picked += chosen
            if len(picked) > 64 + len(self.row) // 8 or monotonic() > deadline:
                return picked

    def _cover(self, p: int, need: int) -> list[Gap]:
        """The cheapest gaps through `p` with `need` bytes: lazily, since each pick makes others dearer."""
        size, cost, maker = self.game.size, self.game.cost, self.game.maker
        known = self.known
        through = ((self.begins < p) & (p < self.stops)).nonzero()[0].tolist()
        heap = [
            (known.get((s, b), cost[maker[s]] / size[s]), s, a, b)
            for s, a, b in map(self.gaps.__getitem__, through)
            if s not in self.dropped
        ]
        heapq.heapify(heap)
        chosen: list[Gap] = []
        while heap and need > 0:
            price, s, a, b = heapq.heappop(heap)
            true = known[s, b] = self._price(s, b) / size[s]
            if true > price * 1.001 and heap and true > heap[0][0]:
                heapq.heappush(heap, (true, s, a, b))
                continue
            if true == float("inf"):
                break
            chosen.append((s, a, b))
            self.dropped.add(s)
            need -= size[s]
        return chosen

    def _price(self, s: int, at: int) -> float:
        """Cost of having `s` again at position `at`, with what that needs and is not live there."""
        game = self.game
        total, seen, stack = 0.0, {game.maker[s]}, [game.maker[s]]
        while stack:
            group = stack.pop()
            total += game.cost[group]
            if len(seen) > CHAIN:
                return float("inf")
            for u in game.ins[group]:
                maker = game.maker[u]
                if maker in seen or game.once[maker] or game.size[u] == 0:
                    continue
                if u in self.dropped or not self.profile.live(u, at):
                    seen.add(maker)
                    stack.append(maker)
        return total


class _Rebuild:
    """A row with the makers of what was dropped executed again before it is read."""

    def __init__(self, game: Game, row: Sequence[int], profile: Profile, picked: list[Gap], budget: int) -> None:
        self.game, self.profile, self.space = game, profile, profile.blocks(budget)
        self.gone: set[int] = set()
        self.row: list[int] = []
        due: dict[int, list[int]] = {}
        ends: dict[int, list[int]] = {}
        for s, a, b in picked:
            due.setdefault(b, []).append(s)
            ends.setdefault(a, []).append(s)
        for position, group in enumerate(row):
            for s in due.get(position, ()):
                if s in self.gone:
                    self._again(game.maker[s], position)
            self._execute(group)
            self.gone.update(ends.get(position, ()))

    def _execute(self, group: int) -> None:
        self.row.append(group)
        self.gone.difference_update(self.game.outs[group])

    def _again(self, group: int, at: int) -> None:
        """Execute `group` here, and first the makers of its inputs that are gone and cannot be held."""
        done: set[int] = set()
        stack = [(group, False)]
        while stack:
            group, ready = stack.pop()
            if group in done:
                continue
            if ready:
                done.add(group)
                self._execute(group)
                continue
            stack.append((group, True))
            for u in self.game.ins[group]:
                maker = self.game.maker[u]
                if maker not in done and len(done) + len(stack) < 2 * CHAIN and self._must_be_made(u, at):
                    stack.append((maker, False))

    def _must_be_made(self, u: int, at: int) -> bool:
        game, profile = self.game, self.profile
        if not may_be_made(game, profile, u, at):
            return False
        if u in self.gone:
            return True
        return not profile.live(u, at) and not self.space.room(profile.last_event(u, at), at, game.size[u])


def trim(game: Game, row: Sequence[int]) -> tuple[int, ...]:
    """`row` without repeats that nobody reads."""
    first: dict[int, int] = {}
    for position, group in enumerate(row):
        first.setdefault(group, position)
    wanted = set(game.ins[game.end])
    out = []
    for position in range(len(row) - 1, -1, -1):
        group = row[position]
        if first[group] != position and wanted.isdisjoint(game.outs[group]):
            continue
        wanted.difference_update(game.outs[group])
        wanted.update(game.ins[group])
        out.append(group)
    return tuple(reversed(out))
