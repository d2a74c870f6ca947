"""A proven lower bound on cost: Checkmate's stages, laid along a path of the graph instead of along an order.

Take a longest path v0, v1, ... Whatever the order, its nodes execute for the first time in this sequence, which
cuts time into stages. Let made[u, t] say that u executes in stage t and held[s, t] that storage s is live while
v_t executes. What is held was held or made; what executes has inputs held or made in its stage; the bytes held
at v_t fit the budget. Every schedule within the budget satisfies this, in any order and with any number of
repeats, so the cheapest solution is a bound. It is tight on training graphs, which are nearly a path, and weak on
wide graphs. SCIP solves it in floating point: proven up to its tolerances.
"""

from __future__ import annotations

from typing import Any

from lowtide.plan.bound import TOLERANCE, round_up
from lowtide.plan.game import Game

LARGEST = 200_000  # variables: beyond this the model is not worth building


def longest_path(game: Game) -> list[int]:
    """Groups, each reading the one before it, ending with the artificial end."""
    depth = [0] * len(game.members)
    before = [-1] * len(game.members)
    for g in range(game.end):
        for m in _needs(game, g):
            if depth[m] + 1 > depth[g]:
                depth[g], before[g] = depth[m] + 1, m
    g = max(range(game.end), key=depth.__getitem__)
    path = [game.end]
    while g >= 0:
        path.append(g)
        g = before[g]
    return path[::-1]


def _needs(game: Game, g: int) -> list[int]:
    return [game.maker[s] for s in game.ins[g]] + list(game.after[g])


class Stages:
    """The model for one budget. `known_cost` is of a plan within it: what costs more to repeat is not repeated."""

    def __init__(self, game: Game, budget: int, known_cost: float) -> None:
        self.game = game
        self.path = longest_path(game)
        self.stage = {g: t for t, g in enumerate(self.path)}
        self.base = sum(game.cost)
        slack = known_cost - self.base
        self.single = [game.once[g] or game.cost[g] > slack * (1 + TOLERANCE) for g in range(game.end)]
        self.earliest = self._earliest()
        self.capacity = budget - game.resident

    def _earliest(self) -> list[int]:
        out = [0] * len(self.game.members)
        for g in range(self.game.end):
            needs = [out[m] + (m in self.stage) for m in _needs(self.game, g)]
            out[g] = self.stage[g] if g in self.stage else max(needs, default=0)
        return out

    def size(self) -> int:
        return 2 * sum(len(self.path) - t for t in self.earliest)

    def bound(self, seconds: float) -> float:
        """No schedule within the budget costs less than this."""
        if self.size() > LARGEST or all(self.single):
            return self.base
        from ortools.linear_solver import pywraplp

        solver = pywraplp.Solver.CreateSolver("SCIP")
        if solver is None:
            return self.base
        made, held = self._variables(solver)
        self._constraints(solver, made, held)
        unit = max(self.game.cost) or 1.0
        terms = [self.game.cost[g] / unit * x for (g, _), x in made.items() if not self.single[g]]
        once = sum(self.game.cost[g] / unit for g in range(self.game.end) if not self.single[g])
        solver.Minimize(sum(terms) - once)
        solver.SetTimeLimit(max(1, int(seconds * 1000)))
        status = solver.Solve()
        if status == pywraplp.Solver.INFEASIBLE:
            return float("inf")
        extra = solver.Objective().BestBound() if status in (solver.OPTIMAL, solver.FEASIBLE) else 0.0
        return self.base + round_up(max(0.0, extra * (1 - TOLERANCE)) * unit, self.game.cost)

    def _variables(self, solver: Any) -> tuple[dict[tuple[int, int], Any], dict[tuple[int, int], Any]]:
        game, count = self.game, len(self.path)
        made: dict[tuple[int, int], Any] = {}
        for g in range(game.end):
            for t in range(self.earliest[g], count):
                if self.stage.get(g) == t:
                    made[g, t] = 1
                elif g not in self.stage or not self.single[g]:
                    made[g, t] = solver.BoolVar("")
        held = {(s, t): solver.BoolVar("") for s, m in enumerate(game.maker) for t in range(self.earliest[m], count)}
        return made, held

    def _constraints(self, solver: Any, made: dict[tuple[int, int], Any], held: dict[tuple[int, int], Any]) -> None:
        game, unit = self.game, max(1, self.capacity)
        bytes_at: list[list[Any]] = [[] for _ in self.path]
        for (s, t), x in held.items():
            bytes_at[t].append(game.size[s] / unit * x)
            here = made.get((game.maker[s], t), 0)
            if not (isinstance(here, int) and here):
                solver.Add(x <= held.get((s, t - 1), 0) + here)
        for t, g in enumerate(self.path):
            for s in (*game.ins[g], *game.outs[g]):
                solver.Add(held[s, t] == 1)
            saved = sum(size for size, _ in game.reuse[g])
            room = (self.capacity - game.scratch[g] + saved) / unit
            solver.Add(sum(bytes_at[t]) <= room + TOLERANCE)
        for (g, t), x in made.items():
            for s in game.ins[g]:
                here = made.get((game.maker[s], t), 0)
                if not (isinstance(here, int) and here):
                    solver.Add(here + held.get((s, t - 1), 0) >= x)
        for g in range(game.end):
            if g not in self.stage:
                row = sum(made[g, t] for t in range(self.earliest[g], len(self.path)))
                solver.Add(row == 1 if self.single[g] else row >= 1)
