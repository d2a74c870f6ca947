"""The state of the search: a schedule, its memory profile, and moves on it that cost little.

A schedule is a row of executions, each with a key; keys only compare. A storage made by an execution lives to
the last key that reads it before its maker executes again, so *every* row whose first executions are in
topological order is a legal schedule: the search never repairs wiring, it only watches bytes. `insert` and
`remove` change one execution and touch the profile only where a lifetime changed: a slice each.

The naive program this stands for: build the row anew, replay it, sum the bytes above the budget.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from lowtide.plan.game import Game

END = float(1 << 40)
Step = tuple[bool, int, float]  # (inserted, group, key)


class Tape:
    """`over[p]` is the bytes live during execution `p` minus the budget; `excess` sums what is positive."""

    __slots__ = (
        "at",
        "budget",
        "copies",
        "cost",
        "dearest",
        "discount",
        "excess",
        "game",
        "keys",
        "log",
        "most",
        "over",
        "uses",
    )

    def __init__(self, game: Game, order: Sequence[int], budget: int) -> None:
        self.game = game
        self.budget = budget
        self.log: list[Step] = []
        self.most, self.dearest = 1 << 60, float("inf")  # where a move gives up: length of the log, cost
        self.load(order)

    # -- whole rows ---------------------------------------------------------------------------------------

    def load(self, order: Sequence[int]) -> None:
        """Take `order` (groups, without the end) as the row."""
        game = self.game
        self.at = [*order, game.end]
        self.keys = [float(p + 1) * 1024.0 for p in range(len(order))] + [END]
        self.copies: list[list[float]] = [[] for _ in game.members]
        self.uses: list[list[float]] = [[] for _ in game.size]
        for key, group in zip(self.keys, self.at, strict=True):
            self.copies[group].append(key)
            for s in game.ins[group]:
                self.uses[s].append(key)
        self.cost = sum(game.cost[g] for g in order)
        self.log.clear()
        self._profile()

    def _profile(self) -> None:
        game, index = self.game, {key: p for p, key in enumerate(self.keys)}
        delta = [0] * (len(self.keys) + 1)
        for s, size in enumerate(game.size):
            for key in self.copies[game.maker[s]]:
                delta[index[key]] += size
                delta[index[self.last_use(s, key)] + 1] -= size
        live = game.resident - self.budget
        self.over = []
        for p, group in enumerate(self.at):
            live += delta[p]
            self.over.append(live + game.scratch[group])
        self.discount: dict[float, int] = {}
        self.excess = 0
        for p, (key, group) in enumerate(zip(self.keys, self.at, strict=True)):
            if game.reuse[group] and (saved := self._saved(group, key)):
                self.discount[key] = saved
                self.over[p] -= saved
            if self.over[p] > 0:
                self.excess += self.over[p]

    def order(self) -> tuple[int, ...]:
        return tuple(self.at[:-1])

    def peak(self) -> int:
        return self.highest(0, len(self.at)) + self.budget

    def set_budget(self, budget: int) -> None:
        shift = self.budget - budget
        self.budget = budget
        self.over = [x + shift for x in self.over]
        self.excess = sum(x for x in self.over if x > 0)

    def rekey(self) -> None:
        """Even keys again, when insertions have used up the numbers between two of them. Ends the undo log."""
        self.load(self.order())

    # -- questions ----------------------------------------------------------------------------------------

    def position(self, key: float) -> int:
        return bisect_left(self.keys, key)

    def last_use(self, s: int, key: float) -> float:
        """Key of the last read of storage `s` as made at `key`; `key` itself if nobody reads it."""
        copies = self.copies[self.game.maker[s]]
        j = bisect_right(copies, key)
        uses = self.uses[s]
        i = (bisect_left(uses, copies[j]) if j < len(copies) else len(uses)) - 1
        return uses[i] if i >= 0 and uses[i] > key else key

    def unread(self, group: int, key: float) -> bool:
        return all(self.last_use(s, key) == key for s in self.game.outs[group])

    def before(self, key: float) -> float:
        """A key between `key` and the execution before it, or 0 when the numbers there are used up."""
        p = bisect_left(self.keys, key)
        low = self.keys[p - 1] if p else 0.0
        middle = (low + self.keys[p]) / 2
        return middle if low < middle < self.keys[p] and self.keys[p] - low > 1e-6 else 0.0

    # -- the two moves ------------------------------------------------------------------------------------

    def insert(self, group: int, key: float) -> None:
        """Execute `group` at `key` too. Its inputs must have been made before `key`."""
        game = self.game
        p = bisect_left(self.keys, key)
        there = self.at[p]
        base = int(self.over[p]) - game.own[there] + self.discount.get(self.keys[p], 0)
        self.keys.insert(p, key)
        self.at.insert(p, group)
        self._open(p, base)
        if base > 0:
            self.excess += base
        self.cost += game.cost[group]
        for s in game.ins[group]:
            self._read(s, key, p)
        copies = self.copies[group]
        j = bisect_left(copies, key)
        copies.insert(j, key)
        for s in game.outs[group]:
            self._make(s, copies, j, p)
        if game.scratch[group]:
            self._add(p, p + 1, game.scratch[group])
        if game.reuse[group]:
            self._refresh(key)
        self.log.append((True, group, key))

    def remove(self, group: int, key: float) -> None:
        """Undo an execution: what read it reads the one before it, which must exist if anything does."""
        game = self.game
        p = bisect_left(self.keys, key)
        if key in self.discount:
            self._add(p, p + 1, self.discount.pop(key))
        copies = self.copies[group]
        j = bisect_left(copies, key)
        heirs = [self._unmake(s, copies, j, p) for s in game.outs[group]]
        del copies[j]
        for heir in heirs:
            if heir:
                self._refresh(heir)
        for s in game.ins[group]:
            self._unread(s, key, p)
        if self.over[p] > 0:
            self.excess -= int(self.over[p])
        del self.keys[p], self.at[p]
        self._shut(p)
        self.cost -= game.cost[group]
        self.log.append((False, group, key))

    def undo(self, mark: int) -> None:
        """Back to the state when `len(log)` was `mark`."""
        log = self.log
        while len(log) > mark:
            inserted, group, key = log[-1]
            if inserted:
                self.remove(group, key)
            else:
                self.insert(group, key)
            del log[-2:]

    # -- what they do to lifetimes ------------------------------------------------------------------------

    def _read(self, s: int, key: float, p: int) -> None:
        uses = self.uses[s]
        i = bisect_left(uses, key)
        uses.insert(i, key)
        copies = self.copies[self.game.maker[s]]
        j = bisect_left(copies, key)
        if i + 1 < len(uses) and (j == len(copies) or uses[i + 1] < copies[j]):
            return
        last = copies[j - 1]
        if i and uses[i - 1] > last:
            last = uses[i - 1]
        self._add(bisect_left(self.keys, last) + 1, p + 1, self.game.size[s])
        if last in self.discount:
            self._refresh(last)

    def _unread(self, s: int, key: float, p: int) -> None:
        uses = self.uses[s]
        i = bisect_left(uses, key)
        del uses[i]
        copies = self.copies[self.game.maker[s]]
        j = bisect_left(copies, key)
        if i < len(uses) and (j == len(copies) or uses[i] < copies[j]):
            return
        last = copies[j - 1]
        if i and uses[i - 1] > last:
            last = uses[i - 1]
        q = bisect_left(self.keys, last)
        self._add(q + 1, p, -self.game.size[s])
        if self.game.reuse[self.at[q]]:
            self._refresh(last)

    def _make(self, s: int, copies: list[float], j: int, p: int) -> None:
        uses, size, key = self.uses[s], self.game.size[s], copies[j]
        i = (bisect_left(uses, copies[j + 1]) if j + 1 < len(copies) else len(uses)) - 1
        last = uses[i] if i >= 0 and uses[i] > key else key
        if j == 0 or last == key:
            self._add(p, bisect_left(self.keys, last) + 1, size)
            if last != key:
                self._refresh(last)
            return
        i = bisect_left(uses, key) - 1
        earlier = uses[i] if i >= 0 and uses[i] > copies[j - 1] else copies[j - 1]
        q = bisect_left(self.keys, earlier)
        self._add(q + 1, p, -size)
        if self.game.reuse[self.at[q]]:
            self._refresh(earlier)

    def _unmake(self, s: int, copies: list[float], j: int, p: int) -> float:
        """Returns the last read before this execution if the storage now lives on past it, else 0."""
        uses, key = self.uses[s], copies[j]
        i = (bisect_left(uses, copies[j + 1]) if j + 1 < len(copies) else len(uses)) - 1
        if i < 0 or uses[i] < key:
            return 0.0
        i = bisect_left(uses, key) - 1
        earlier = uses[i] if i >= 0 and uses[i] > copies[j - 1] else copies[j - 1]
        self._add(bisect_left(self.keys, earlier) + 1, p, self.game.size[s])
        return earlier

    # -- the profile, as a list: `WideTape` has it as an array --------------------------------------------

    def highest(self, low: int, high: int) -> int:
        """The most bytes above the budget on [low, high)."""
        return max(self.over[low:high])

    def hottest(self) -> int:
        """The position of the peak."""
        return self.over.index(max(self.over))

    def held(self, low: int, high: int, size: int) -> int:
        """Bytes above the budget on [low, high) that `size` bytes there are to blame for."""
        part = self.over[low:high]
        if not part or max(part) <= 0:
            return 0
        return sum([x if x < size else size for x in part if x > 0])

    def _open(self, p: int, base: int) -> None:
        self.over.insert(p, base)

    def _shut(self, p: int) -> None:
        del self.over[p]

    def _add(self, low: int, high: int, delta: int) -> None:
        """Add `delta` bytes to the profile on [low, high)."""
        if low >= high:
            return
        over = self.over
        if high - low == 1:
            x = over[low]
            over[low] = x + delta
            if x > 0:
                self.excess -= x
            if x + delta > 0:
                self.excess += x + delta
            return
        part = over[low:high]
        highest = max(part)
        if highest > 0:
            self.excess -= sum([x for x in part if x > 0])
        part = [x + delta for x in part]
        if highest + delta > 0:
            self.excess += sum([x for x in part if x > 0])
        over[low:high] = part

    # -- buffers handed on in place -----------------------------------------------------------------------

    def _saved(self, group: int, key: float) -> int:
        """Bytes that the execution at `key` need not allocate, since inputs die there and hand theirs on."""
        saved, taken = 0, set()
        for size, candidates in self.game.reuse[group]:
            for s in candidates:
                if s not in taken and self._dies(s, key):
                    taken.add(s)
                    saved += size
                    break
        return saved

    def _dies(self, s: int, key: float) -> bool:
        uses = self.uses[s]
        i = bisect_right(uses, key)
        if i == len(uses):
            return True
        copies = self.copies[self.game.maker[s]]
        j = bisect_left(copies, key)
        return j < len(copies) and copies[j] < uses[i]

    def _refresh(self, key: float) -> None:
        p = bisect_left(self.keys, key)
        group = self.at[p]
        if not self.game.reuse[group]:
            return
        saved, was = self._saved(group, key), self.discount.get(key, 0)
        if saved != was:
            self._add(p, p + 1, was - saved)
            if saved:
                self.discount[key] = saved
            else:
                del self.discount[key]
