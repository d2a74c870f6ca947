"""What a plan did, move by move: how often, what it saved, what it costs. Exact all of them: same results bit for bit.

Bytes are of simulated chunks. Each move is measured against what came before it: the order against the traced one
with updates left where they may as well wait, early updates against that, recomputation against both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from lowtide.plan.problem import Problem, Schedule
from lowtide.program import Program
from lowtide.simulate import Timeline, simulate

ORDER, EARLY, AGAIN = "order", "update early", "recompute"


@dataclass(frozen=True, slots=True)
class Move:
    """One kind of thing that a plan does."""

    name: str
    count: int
    saved: int
    seconds: float


class Account:
    """Of one step in one order, before anything is recomputed."""

    def __init__(self, program: Program, batch: int, order: Sequence[int], before: Timeline) -> None:
        self.program, self.batch, self.order, self.before = program, batch, order, before

    def moves(self, problem: Problem, schedule: Schedule, after: Timeline) -> tuple[Move, ...]:
        runs = Counter(schedule)
        extra = sum((count - 1) * problem.nodes[node].cost for node, count in runs.items())
        again = len(schedule) - len(runs)
        early = early_updates(self.program, [self.order[node] for node in schedule])
        listed, waiting, before = self.listed, self.with_updates_last.chunk_peak, self.before.chunk_peak
        moves = [Move(ORDER, len(self.order), max(0, listed.chunk_peak - max(waiting, before)), 0.0)]
        if early:
            moves.append(Move(EARLY, early, max(0, min(waiting, listed.chunk_peak) - before), 0.0))
        if again:
            moves.append(Move(AGAIN, again, max(0, before - after.chunk_peak), extra))
        return tuple(moves)

    @cached_property
    def listed(self) -> Timeline:
        """The step in the order that it was traced."""
        return simulate(self.program, self.batch)

    @cached_property
    def with_updates_last(self) -> Timeline:
        """The step in the chosen order, but with every update after the backward pass."""
        late = updates_last(self.program, self.order)
        return self.before if late == list(self.order) else simulate(self.program, self.batch, late)


def early_updates(program: Program, executed: Sequence[int]) -> int:
    """How many ops of updates come before the last op of the backward pass."""
    phases = [program.ops[index].phase for index in executed]
    if "backward" not in phases:
        return 0
    last = len(phases) - 1 - phases[::-1].index("backward")
    return phases[:last].count("update")


def updates_last(program: Program, order: Sequence[int]) -> list[int]:
    """`order` with the ops of updates, and what depends on them, after all others."""
    maker = {value: index for index, op in enumerate(program.ops) for value in op.outputs}
    late: set[int] = set()
    for index in order:
        op = program.ops[index]
        before = {*(maker[value] for value in op.inputs if value in maker), *op.after}
        if op.phase == "update" or not late.isdisjoint(before):
            late.add(index)
    return [index for index in order if index not in late] + [index for index in order if index in late]
