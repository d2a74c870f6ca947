"""Simulated annealing over schedules, with the budget as a penalty whose weight swings (strategic oscillation).

Energy is cost + weight x bytes above the budget, summed over the executions. The weight rises while the row is
over the budget and falls while it is within it, so the walk keeps crossing the border where the best plans are.
The budget itself comes down a little at a time, from the peak of the first row to the one asked for: every step
on the way is a point of the curve of bytes against time.
Known to be suboptimal: everything; it proves nothing. `exact` does, on small problems.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from random import Random
from time import monotonic

from lowtide.plan.moves import drag, drop, gap, recompute, shift, window
from lowtide.plan.rollback import Rollback, roll_back
from lowtide.plan.tape import Tape

Found = tuple[int, float, tuple[int, ...]]  # peak, cost, order

BLOCK = 64  # moves between two looks at how much is spent
HOT, COLD = 0.5, 0.005  # temperatures, in mean node costs
STEP = 0.995  # how far the budget comes down at once
LENGTHS = (1, 2, 3, 5, 8, 16)  # executions that one recomputation may add
NEAR = (8.0, 20)  # how far from a place over the budget a move begins: executions, share of the row
CLUSTER = 10  # executions that one move may carry along
ROLLBACKS = 0.02  # of the moves while over the budget: each takes as long as some twenty others
ROLLBACK_LARGEST = 300  # groups: beyond, each takes far longer


class Annealer:
    """A walk over the rows of one Tape. `found` collects the rows within their budget worth keeping."""

    def __init__(self, tape: Tape, rng: Random, enough: float = 0.0, hot: float = HOT) -> None:
        self.tape, self.rng, self.hot = tape, rng, hot
        self.target = tape.budget
        self.enough = enough * (1 + 1e-12)  # a row within the target that costs no more ends the walk
        self.found: list[Found] = []
        self.best = float("inf")
        self.tried = 0
        self.spare = 0.0  # a rise in energy that is still worth trying
        game = tape.game
        self.cut = Rollback(game) if game.end <= ROLLBACK_LARGEST else None
        self.unit = sum(game.cost) / max(1, game.end) or 1.0
        mean_size = sum(game.size) / max(1, len(game.size))
        self.weight = self.unit / max(1.0, mean_size)
        self.lightest, self.heaviest = self.weight / 64, self.weight * 4096
        tape.set_budget(max(tape.budget, tape.peak()))
        self.note()

    def note(self) -> None:
        """Keep the row if it is the cheapest within this budget."""
        tape = self.tape
        if tape.excess == 0 and tape.cost < self.best - 1e-9:
            self.best = tape.cost
            self.found.append((tape.peak(), tape.cost, tape.order()))

    def run(self, moves: int, until: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Come down to the budget, then cool, in about `moves` moves; earlier if `until` or `stop` says so."""
        start = monotonic()

        def spent() -> float:
            """The share of the walk that is behind us; the clock has a say when half the time is gone."""
            if self.best <= self.enough and self.tape.budget == self.target:
                return 1.0
            clock = (monotonic() - start) / max(1e-9, until - start)
            return 1.0 if stop() else max(self.tried / moves, 2 * clock - 1)

        self.descend(spent)
        self.polish(until)
        self.cool(spent)

    def polish(self, until: float) -> None:
        """Drop every recomputation that the budget does not need, the dearest first."""
        tape, cost = self.tape, self.tape.game.cost
        repeats = [
            (cost[g], g, key) for g, copies in enumerate(tape.copies) if len(copies) > 1 for key in reversed(copies)
        ]
        for _, group, key in sorted(repeats, reverse=True):
            if tape.excess or monotonic() > until:
                break
            mark = len(tape.log)
            if key not in tape.copies[group] or not drop(tape, group, key):
                continue
            if tape.excess:
                tape.undo(mark)
        tape.log.clear()
        self.note()

    def descend(self, spent: Callable[[], float]) -> None:
        """Lower the budget a little whenever the row is within it, until it is the one asked for."""
        tape = self.tape
        while (tape.budget > self.target or tape.excess) and spent() < 1:
            if tape.excess == 0:
                tape.set_budget(max(self.target, int(tape.peak() * STEP) - 1))
                self.best = float("inf")
                self.note()
            self.block(self.hot * self.unit)

    def cool(self, spent: Callable[[], float]) -> None:
        begin = spent()
        while (now := spent()) < 1:
            self.block(self.unit * self.hot * (COLD / self.hot) ** ((now - begin) / (1 - begin)))

    def block(self, temperature: float) -> None:
        tape = self.tape
        inside = 0
        for _ in range(BLOCK):
            self.step(temperature)
            inside += tape.excess == 0
        self.weight *= 0.94 if 2 * inside > BLOCK else 1.06
        self.weight = min(max(self.weight, self.lightest), self.heaviest)
        if len(tape.log) > 4096:
            tape.log.clear()
        if self.rng.random() < 0.002:
            tape.rekey()

    def step(self, temperature: float) -> None:
        tape = self.tape
        mark, cost, excess = len(tape.log), tape.cost, tape.excess
        self.tried += 1
        self.spare = 6 * temperature
        tape.most = mark + self.rng.choice(LENGTHS)
        if not self.move():
            tape.undo(mark)
            return
        rise = tape.cost - cost + self.weight * (tape.excess - excess)
        if rise > 0 and (rise > 30 * temperature or self.rng.random() >= exp(-rise / temperature)):
            tape.undo(mark)
        elif tape.excess == 0:
            self.note()

    # -- which move ---------------------------------------------------------------------------------------

    def move(self) -> bool:
        r = self.rng.random()
        if self.cut is not None and self.tape.excess > 0 and r < ROLLBACKS:
            return roll_back(self.tape, self.cut, self.pick_hot(), self.rng)
        if r < 0.12:
            return self.move_drag()
        if r < 0.45:
            return self.move_shift()
        if self.tape.excess > 0 or r < 0.5:
            return self.move_break() if r < 0.9 else self.move_drop()
        if r < 0.75:
            return self.move_drop()
        if r < 0.9:
            return self.move_swap()
        return self.move_break()

    def move_break(self) -> bool:
        """End a lifetime that passes a place over the budget, and recompute before its next use."""
        tape, rng, game = self.tape, self.rng, self.tape.game
        p = self.pick_hot()
        key = tape.keys[p]
        for _ in range(12):
            q = rng.randrange(p, len(tape.at))
            ins = game.ins[tape.at[q]]
            if not ins:
                continue
            s = rng.choice(ins)
            if not game.size[s]:
                continue
            low, _ = gap(tape, s, tape.keys[q])
            a = tape.position(low) + 1
            if low >= key or a >= q:
                continue
            worth = self.weight * tape.held(a, q, game.size[s]) + self.spare
            if game.cost[game.maker[s]] < worth:
                tape.dearest = tape.cost + worth
                return recompute(tape, game.maker[s], tape.keys[q], rng, self.weight)
        return False

    def pick_hot(self) -> int:
        """A position over the budget if there is one, any otherwise."""
        tape, rng = self.tape, self.rng
        n = len(tape.at)
        if not tape.excess:
            return rng.randrange(n)
        for _ in range(6):
            p = rng.randrange(n)
            if tape.over[p] > 0:
                return p
        return tape.hottest()

    def pick_near(self) -> int:
        """An execution near a place over the budget if there is one, any otherwise."""
        n, rng = len(self.tape.at) - 1, self.rng
        if self.tape.excess and rng.random() < 0.7:
            p = self.pick_hot() + int(rng.gauss(0.0, max(NEAR[0], n / NEAR[1])))
            if 0 <= p < n:
                return p
        return rng.randrange(n)

    def move_drop(self) -> bool:
        """Drop a recomputation."""
        tape, rng = self.tape, self.rng
        for _ in range(20):
            p = rng.randrange(len(tape.at))
            if len(tape.copies[tape.at[p]]) > 1:
                return drop(tape, tape.at[p], tape.keys[p])
        return False

    def move_swap(self) -> bool:
        """Drop one recomputation and pay for it with another."""
        if not self.move_drop():
            return False
        if self.tape.excess:
            self.move_break()
        return True

    def move_shift(self) -> bool:
        """Move one execution to the far ends of where it may be, near by, or anywhere."""
        tape, rng = self.tape, self.rng
        p = self.pick_near()
        group, key = tape.at[p], tape.keys[p]
        low, high = window(tape, group, key)
        a, b = tape.position(low), tape.position(high)
        if b - a < 3:
            return False
        r = rng.random()
        if r < 0.3:
            q = b
        elif r < 0.5:
            q = a + 1
        elif r < 0.8:
            q = rng.randint(max(a + 1, p - 6), min(b, p + 7))
        else:
            q = rng.randint(a + 1, b)
        if q in (p, p + 1):
            return False
        target = tape.before(tape.keys[q])
        return bool(target) and shift(tape, group, key, target)

    def move_drag(self) -> bool:
        """Move one execution further than it may go alone, with those that must go along."""
        tape, rng = self.tape, self.rng
        n = len(tape.at) - 1
        p = self.pick_near()
        reach = 4 << rng.randrange(5)
        q = min(n, max(0, p + rng.randint(-reach, reach)))
        return q not in (p, p + 1) and drag(tape, p, q, CLUSTER)
