"""A stretch of a row as a CP-SAT model: all of a small game's row for a proof, a window of a longer one to improve it.

Moccasin's retention intervals: each group has up to C copies, each an optional interval from the position where it
executes to the last position that reads it, and the bytes of the intervals share one cumulative resource. Unlike
Moccasin's, the order of first executions is free. What is live before the stretch is there at no cost until it is
dropped; what is read after it is held to its end. For the whole game, C is not a guess: a plan no dearer than a known
one cannot repeat a group more often than the money left over pays for, nor more often than it is read. So a
proof of that model is a proof of the game, unless `copies_cut` says that C was cut to keep the model small.

Known to be suboptimal: buffers handed on in place are counted twice, so games with any are left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.plan.game import Game
from lowtide.plan.profile import row_profile

SCALE = 1 << 20  # costs become whole numbers of about this many parts of the known cost
SPARE_PLACES = 4  # executions by which a window may grow
OTHERS = 8  # groups that do not execute in a window and may do so in the next row


@dataclass(frozen=True, slots=True)
class Proof:
    """The best row of the model, if it beats the known one, and a cost that no row beats."""

    order: tuple[int, ...] | None
    cost: float
    bound: float
    optimal: bool
    copies_cut: bool


def copies_allowed(game: Game, slack: float, most: int) -> tuple[list[int], bool]:
    """How often each group can execute in a plan that adds at most `slack` to the base cost."""
    allowed = [1] * len(game.members)
    cut = False
    for g in range(game.end - 1, -1, -1):
        if game.once[g]:
            continue
        reads = sum(allowed[r] for r in {r for s in game.outs[g] for r in game.readers[s]})
        paid = int(slack / game.cost[g] + 1e-9) if game.cost[g] > 0 else reads
        allowed[g] = max(1, min(1 + paid, reads))
        if allowed[g] > most:
            allowed[g], cut = most, True
    return allowed, cut


class Stretch:
    """Positions [low, high) of a row: what executes there or may, what is live before, what is read after."""

    def __init__(self, game: Game, row: Sequence[int], low: int, high: int) -> None:
        self.game, self.inside = game, tuple(row[low:high])
        profile = row_profile(game, row)
        self.first = {g for g in self.inside if low <= profile.first[g] < high}
        self.counts = Counter(self.inside)
        before = {s for s in range(len(game.size)) if profile.live(s, low)}
        after = {s for s in range(len(game.size)) if profile.live(s, high)}
        begun = {w for w in range(game.end) if profile.first[w] < high}
        for g in self._others(before, begun):
            self.counts[g] = 0
        touched = {s for g in self.counts for s in (*game.ins[g], *game.outs[g])}
        self.before, self.after = before & touched, after & touched
        self.passing = sum(game.size[s] for s in (before & after) - touched)

    def _others(self, before: set[int], begun: set[int]) -> list[int]:
        """Groups whose values are live here and could be dropped and made again: the largest few."""
        game = self.game
        there = before | {s for g in self.counts for s in game.outs[g]}
        out: list[int] = []
        for s in sorted(before, key=lambda s: -game.size[s]):
            g = game.maker[s]
            free = not game.once[g] and begun.isdisjoint(game.closers[g]) and there.issuperset(game.ins[g])
            if g not in self.counts and g not in out and free and game.size[s] and not game.reuse[g]:
                out.append(g)
        return out[:OTHERS]


class Model:
    """Variables and constraints; see the module's docstring."""

    def __init__(self, stretch: Stretch, budget: int, allowed: dict[int, int], horizon: int) -> None:
        from ortools.sat.python import cp_model

        self.cp, self.game, self.stretch = cp_model, stretch.game, stretch
        self.model = cp_model.CpModel()
        self.allowed, self.horizon = allowed, horizon
        cost = self.game.cost
        self.known_cost = sum(cost[g] for g in stretch.inside)
        whole = all(cost[g] == int(cost[g]) for g in allowed) and self.known_cost <= SCALE
        self.unit = 1.0 if whole else max(self.known_cost / SCALE, 1e-12)
        self.start: dict[int, list[Any]] = {}
        self.on: dict[int, list[Any]] = {}
        self.last: dict[tuple[int, int], Any] = {}  # (storage, copy) -> where it is dropped; copy -1 was there before
        self._copies()
        self._lifetimes(budget - self.game.resident - stretch.passing)
        for g in allowed:
            self._reads(g)
        self._after()
        self._order()
        self.model.minimize(sum(self._price(g) * on for g in allowed for on in self.on[g]))
        self._hint()

    def _price(self, g: int) -> int:
        return int(self.game.cost[g] / self.unit)  # rounded down: a bound in these units is a bound

    def _copies(self) -> None:
        m = self.model
        for g, count in self.allowed.items():
            starts = [m.new_int_var(0, self.horizon - 1, f"s{g}_{c}") for c in range(count)]
            ons = [m.new_bool_var(f"a{g}_{c}") for c in range(count)]
            if g in self.stretch.first:
                ons[0] = m.new_constant(1)
            for c in range(1, count):
                m.add_implication(ons[c], ons[c - 1])
                m.add(starts[c] > starts[c - 1]).only_enforce_if(ons[c])
            self.start[g], self.on[g] = starts, ons
        m.add_no_overlap(
            m.new_optional_fixed_size_interval_var(s, 1, on, "")
            for g in self.allowed
            for s, on in zip(self.start[g], self.on[g], strict=True)
        )

    def _lifetimes(self, capacity: int) -> None:
        m, game = self.model, self.game
        intervals, demands = [], []
        for s in sorted(self.stretch.before):
            self.last[s, -1] = m.new_int_var(0, self.horizon, f"e{s}")
            intervals.append(m.new_interval_var(0, self.last[s, -1], self.last[s, -1], ""))
            demands.append(game.size[s])
            for on, start in zip(self.on.get(game.maker[s], [])[:1], self.start.get(game.maker[s], []), strict=False):
                m.add(self.last[s, -1] <= start).only_enforce_if(on)
        for g in self.allowed:
            for c, (start, on) in enumerate(zip(self.start[g], self.on[g], strict=True)):
                for s in game.outs[g]:
                    end = self.last[s, c] = m.new_int_var(1, self.horizon, f"e{s}_{c}")
                    intervals.append(
                        m.new_optional_interval_var(start, m.new_int_var(1, self.horizon, ""), end, on, "")
                    )
                    demands.append(game.size[s])
                    if c + 1 < len(self.on[g]):
                        m.add(end <= self.start[g][c + 1]).only_enforce_if(self.on[g][c + 1])
                if game.scratch[g]:
                    intervals.append(m.new_optional_fixed_size_interval_var(start, 1, on, ""))
                    demands.append(game.scratch[g])
        m.add_cumulative(intervals, demands, capacity)

    def _sources(self, s: int) -> list[tuple[int, Any, Any]]:
        """The copies of `s`: number, whether it is there, where it is made."""
        maker = self.game.maker[s]
        copies = zip(self.on.get(maker, []), self.start.get(maker, []), strict=True)
        there = [(c, on, start) for c, (on, start) in enumerate(copies)]
        return [(-1, self.model.new_constant(1), -1), *there] if s in self.stretch.before else there

    def _reads(self, g: int) -> None:
        m = self.model
        for s in self.game.ins[g]:
            sources = self._sources(s)
            for on, start in zip(self.on[g], self.start[g], strict=True):
                choices = []
                for c, made_on, made in sources:
                    reads = on if len(sources) == 1 else m.new_bool_var("")
                    m.add_implication(reads, made_on)
                    m.add(made < start).only_enforce_if(reads)
                    m.add(self.last[s, c] > start).only_enforce_if(reads)
                    choices.append(reads)
                if len(choices) > 1:
                    m.add(sum(choices) == on)

    def _after(self) -> None:
        """What is read after the stretch is held to its end by one copy."""
        m = self.model
        for s in sorted(self.stretch.after):
            held = []
            for c, made_on, _ in self._sources(s):
                held.append(m.new_bool_var(""))
                m.add_implication(held[-1], made_on)
                m.add(self.last[s, c] == self.horizon).only_enforce_if(held[-1])
            m.add(sum(held) == 1)

    def _order(self) -> None:
        m, game, first = self.model, self.game, self.stretch.first
        for g in self.allowed:
            for w in game.after[g]:
                if g in first and w in first:
                    m.add(self.start[g][0] > self.start[w][0])
            for w in game.closers[g]:
                for on, start in zip(self.on[g], self.start[g], strict=True):
                    if w in first:
                        m.add(self.start[w][0] > start).only_enforce_if(on)

    def _hint(self) -> None:
        seen: Counter[int] = Counter()
        for position, g in enumerate(self.stretch.inside):
            if seen[g] < len(self.start[g]):
                self.model.add_hint(self.start[g][seen[g]], position)
            seen[g] += 1
        for g, ons in self.on.items():
            for c in range(g in self.stretch.first, len(ons)):
                self.model.add_hint(ons[c], c < seen[g])

    def solve(self, seconds: float, workers: int, cut: bool = False) -> Proof:
        cp = self.cp
        solver = cp.CpSolver()
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.num_workers = workers
        solver.parameters.random_seed = 0
        status = solver.solve(self.model)
        if status not in (cp.OPTIMAL, cp.FEASIBLE):
            return Proof(None, self.known_cost, 0.0, False, cut)
        rows = [
            (solver.value(start), g)
            for g in self.allowed
            for start, on in zip(self.start[g], self.on[g], strict=True)
            if solver.value(on)
        ]
        order = tuple(g for _, g in sorted(rows))
        cost = sum(self.game.cost[g] for g in order)
        return Proof(order, cost, min(solver.best_objective_bound * self.unit, cost), status == cp.OPTIMAL, cut)


def prove(game: Game, budget: int, known: Sequence[int], seconds: float, most: int = 4, workers: int = 2) -> Proof:
    """Try to improve on `known`, an order of groups within `budget`, or to prove that nothing does."""
    slack = sum(game.cost[g] for g in known) - sum(game.cost)
    allowed, cut = copies_allowed(game, slack, most)
    times = dict(enumerate(allowed[: game.end]))
    return Model(Stretch(game, known, 0, len(known)), budget, times, sum(allowed)).solve(seconds, workers, cut)


def window(game: Game, budget: int, row: Sequence[int], low: int, high: int, seconds: float) -> tuple[int, ...]:
    """`row` with a better stretch at [low, high), if the model finds one in time."""
    stretch = Stretch(game, row, low, high)
    allowed = {g: count + (count < 2 and not game.once[g]) for g, count in stretch.counts.items()}
    proof = Model(stretch, budget, allowed, high - low + SPARE_PLACES).solve(seconds, workers=1)
    better = proof.order is not None and proof.cost < sum(game.cost[g] for g in stretch.inside)
    return (*row[:low], *(proof.order or ()), *row[high:]) if better else tuple(row)
