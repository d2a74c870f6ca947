"""The whole game as a CP-SAT model: proofs for small problems, and the repair of windows of large ones.

Moccasin's retention intervals: each node has up to C copies, each an optional interval from the position where it
executes to the last position that reads it, and the bytes of the intervals share one cumulative resource. Unlike
Moccasin's, the order of first executions is free. C is not a guess: a plan no dearer than a known one cannot
repeat a node more often than the money left over pays for, nor more often than it is read. So a proof of this
model is a proof of the game, unless `copies_cut` says that C was cut to keep the model small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lowtide.plan.game import Game

SCALE = 1 << 20  # costs become whole numbers of about this many parts of the known cost


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


class Model:
    """Variables and constraints; see the module's docstring."""

    def __init__(self, game: Game, budget: int, known: Sequence[int], most: int) -> None:
        from ortools.sat.python import cp_model

        self.cp, self.game, self.known = cp_model, game, known
        self.model = cp_model.CpModel()
        base = sum(game.cost)
        self.known_cost = sum(game.cost[g] for g in known)
        self.unit = max(self.known_cost / SCALE, 1e-12) if self.known_cost > SCALE else 1.0
        if any(c != int(c) for c in game.cost):
            self.unit = max(self.known_cost / SCALE, 1e-12)
        self.allowed, self.cut = copies_allowed(game, self.known_cost - base, most)
        self.horizon = sum(self.allowed)
        self.start: list[list[Any]] = []
        self.on: list[list[Any]] = []
        self.last: dict[tuple[int, int], Any] = {}
        self._copies()
        self._lifetimes(budget - game.resident)
        for g in range(len(game.members)):
            self._reads(g)
        self._order()
        extra = [self._price(g) * on for g in range(game.end) for on in self.on[g][1:]]
        self.model.minimize(sum(extra))
        self._hint()

    def _price(self, g: int) -> int:
        return int(self.game.cost[g] / self.unit)  # rounded down: a bound in these units is a bound

    def _copies(self) -> None:
        m = self.model
        for g, count in enumerate(self.allowed):
            starts = [m.new_int_var(0, self.horizon - 1, f"s{g}_{c}") for c in range(count)]
            ons = [m.new_constant(1)] + [m.new_bool_var(f"a{g}_{c}") for c in range(1, count)]
            for c in range(1, count):
                m.add_implication(ons[c], ons[c - 1])
                m.add(starts[c] > starts[c - 1]).only_enforce_if(ons[c])
            self.start.append(starts)
            self.on.append(ons)
        unit = [
            m.new_optional_fixed_size_interval_var(s, 1, on, "")
            for starts, ons in zip(self.start, self.on, strict=True)
            for s, on in zip(starts, ons, strict=True)
        ]
        m.add_no_overlap(unit)

    def _lifetimes(self, capacity: int) -> None:
        m, game = self.model, self.game
        intervals, demands = [], []
        for g in range(game.end):
            for c, (start, on) in enumerate(zip(self.start[g], self.on[g], strict=True)):
                for s in game.outs[g]:
                    end = m.new_int_var(1, self.horizon, f"e{s}_{c}")
                    length = m.new_int_var(1, self.horizon, "")
                    self.last[s, c] = end
                    intervals.append(m.new_optional_interval_var(start, length, end, on, ""))
                    demands.append(game.size[s])
                    if c + 1 < len(self.on[g]):
                        m.add(end <= self.start[g][c + 1]).only_enforce_if(self.on[g][c + 1])
                if game.scratch[g]:
                    intervals.append(m.new_optional_fixed_size_interval_var(start, 1, on, ""))
                    demands.append(game.scratch[g])
        m.add_cumulative(intervals, demands, capacity)

    def _reads(self, g: int) -> None:
        m, game = self.model, self.game
        for on, start in zip(self.on[g], self.start[g], strict=True):
            for s in game.ins[g]:
                maker = game.maker[s]
                choices = []
                m.add(start > self.start[maker][0]).only_enforce_if(on)
                for c, (made_on, made) in enumerate(zip(self.on[maker], self.start[maker], strict=True)):
                    reads = on if len(self.on[maker]) == 1 else m.new_bool_var("")
                    if reads is not on:
                        m.add_implication(reads, made_on)
                        m.add_implication(reads, on)
                    m.add(made < start).only_enforce_if(reads)
                    m.add(self.last[s, c] > start).only_enforce_if(reads)
                    choices.append(reads)
                if len(choices) > 1:
                    m.add(sum(choices) == on)

    def _order(self) -> None:
        m, game = self.model, self.game
        for g in range(game.end):
            m.add(self.start[game.end][0] > self.start[g][-1]).only_enforce_if(self.on[g][-1])
            for w in game.after[g]:
                m.add(self.start[g][0] > self.start[w][0])
            for w in game.closers[g]:
                for on, start in zip(self.on[g], self.start[g], strict=True):
                    m.add(self.start[w][0] > start).only_enforce_if(on)

    def _hint(self) -> None:
        seen = [0] * len(self.game.members)
        for position, g in enumerate([*self.known, self.game.end]):
            c = seen[g]
            seen[g] += 1
            if c < len(self.start[g]):
                self.model.add_hint(self.start[g][c], position)
        for g, ons in enumerate(self.on):
            for c in range(1, len(ons)):
                self.model.add_hint(ons[c], c < seen[g])

    def solve(self, seconds: float, workers: int, verbose: bool = False) -> Proof:
        cp = self.cp
        solver = cp.CpSolver()
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.num_workers = workers
        solver.parameters.random_seed = 0
        solver.parameters.log_search_progress = verbose
        status = solver.solve(self.model)
        base = sum(self.game.cost)
        if status not in (cp.OPTIMAL, cp.FEASIBLE):
            return Proof(None, self.known_cost, base, False, self.cut)
        rows = [
            (solver.value(start), g)
            for g in range(self.game.end)
            for start, on in zip(self.start[g], self.on[g], strict=True)
            if solver.value(on)
        ]
        order = tuple(g for _, g in sorted(rows))
        bound = base + solver.best_objective_bound * self.unit
        cost = sum(self.game.cost[g] for g in order)
        return Proof(order, cost, min(bound, cost), status == cp.OPTIMAL, self.cut)


def prove(game: Game, budget: int, known: Sequence[int], seconds: float, most: int = 4, workers: int = 2) -> Proof:
    """Try to improve on `known`, an order of groups within `budget`, or to prove that nothing does."""
    return Model(game, budget, known, most).solve(seconds, workers)
