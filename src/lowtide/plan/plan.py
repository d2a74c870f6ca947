"""Program + budget -> Plan: the schedule, proven on the simulator before it is believed.

The planner works on requested bytes, a limit bites on chunks. So the plan is made for a target below the budget,
simulated with its copies on the allocator's model, and made again for a smaller target until its chunks fit.
Infeasible is an answer too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from lowtide.errors import Infeasible
from lowtide.plan.bridge import problem_of, with_copies
from lowtide.plan.planner import Planner
from lowtide.plan.problem import Report, Schedule, silent
from lowtide.program import Program
from lowtide.simulate import Timeline, simulate, tidy_order
from lowtide.units import format_size

ATTEMPTS = 6
SHARE_OF_FIRST = 0.5  # of the time, for the first attempt
FIRST_STEP_DOWN = 0.005  # of the target, when a plan fits in bytes and not in the allocator's pieces; then doubled
SPARE = 0.004  # of the budget, for what the simulator does not know
BATCHES_AHEAD = 2  # batches that an input pipeline may have ready on the device besides the one that trains


@dataclass(frozen=True, slots=True)
class Move:
    """One kind of thing that a plan does, exact all of them: the results are the same bit for bit."""

    name: str
    count: int
    saved: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be executed, and what it needs and costs.

    `order` is the base order of the Program's ops and `schedule` the positions in it that execute, repeats
    included. `program` is the Program with those copies in it, in the order that it runs.
    """

    budget: int
    order: tuple[int, ...]
    schedule: Schedule
    program: Program = field(repr=False)
    timeline: Timeline = field(repr=False)
    before: Timeline = field(repr=False)
    seconds: float = 0.0
    seconds_before: float = 0.0
    gap: float = 0.0
    moves: tuple[Move, ...] = ()

    @property
    def peak(self) -> int:
        return self.timeline.chunk_peak

    @property
    def slowdown(self) -> float:
        """Predicted extra time, as a fraction of the step's."""
        return self.seconds / self.seconds_before - 1 if self.seconds_before else 0.0


def plan_facts(plan: Plan) -> dict[str, Any]:
    """A Plan in numbers, for a report. Bytes are integers, and their keys end in `_bytes`."""
    return {
        "budget_bytes": plan.budget,
        "peak_bytes": plan.peak,
        "without_bytes": plan.before.chunk_peak,
        "resident_bytes": plan.timeline.chunk_resident,
        "batch": plan.timeline.batch,
        "slowdown": plan.slowdown,
        "gap": plan.gap,
        "moves": [
            {"name": move.name, "count": move.count, "saved_bytes": move.saved, "seconds": move.seconds, "exact": True}
            for move in plan.moves
        ],
    }


def plan_curve(program: Program, seconds: float = 20.0, batch: int | None = None) -> dict[str, Any]:
    """Bytes against time from the base to the smallest budget found, and the op that sets that."""
    size = program.batch if batch is None else batch
    order = tidy_order(program, size)
    before = simulate(program, size, order)
    planner = Planner(problem_of(program, size, order))
    outside = before.chunk_peak - planner.base.peak  # residents, and what the allocator rounds up
    points = sorted(planner.curve(seconds), key=lambda point: -point.budget)
    smallest = planner.smallest(0.0)
    return {
        "curve": [
            {
                "budget_bytes": point.peak + outside,
                "share": (point.peak + outside) / before.chunk_peak,
                "slowdown": point.cost / planner.base.cost - 1,
            }
            for point in points[:: max(1, len(points) // 12)]
        ],
        "smallest": {"budget_bytes": smallest.peak + outside, "op": planner.problem.label(smallest.node)},
    }


def make_plan(
    program: Program, budget: int, batch: int | None = None, seconds: float = 20.0, report: Report = silent
) -> Plan:
    """The cheapest plan found whose chunks stay within `budget`, residents included; `Infeasible` if there is none."""
    size = program.batch if batch is None else batch
    deadline = monotonic() + seconds
    order = tidy_order(program, size)
    before = simulate(program, size, order)
    listed = simulate(program, size)
    problem = problem_of(program, size, order)
    planner = Planner(problem)
    room = budget - int(budget * SPARE) - BATCHES_AHEAD * sum(program.values[v].bytes(size) for v in program.inputs)
    outside = before.chunk_resident - problem.resident_bytes  # in use and not in the game
    target = min(planner.base.peak, room - outside)
    smallest: int | None = None
    for attempt in range(ATTEMPTS):
        left = max(1.0, deadline - monotonic())
        try:
            solution = planner.solve(target, left * SHARE_OF_FIRST if attempt == 0 else left / 2, report)
        except Infeasible as error:
            raise _infeasible(planner, budget, outside, smallest, error) from None
        planned = with_copies(program, order, solution.schedule)
        timeline = simulate(planned, size)
        if timeline.chunk_peak > room:
            over = timeline.chunk_peak - room
            smallest = timeline.chunk_peak if smallest is None else min(smallest, timeline.chunk_peak)
            target -= max(over, int(target * FIRST_STEP_DOWN * 2**attempt))
            continue
        moves = _moves(program, order, solution.schedule, listed, before, timeline, planner.base.cost, problem.nodes)
        return Plan(
            budget, tuple(order), solution.schedule, planned, timeline, before, solution.cost, planner.base.cost,
            solution.gap, moves,
        )  # fmt: skip
    raise _infeasible(planner, budget, outside, smallest, None)


def _infeasible(
    planner: Planner, budget: int, outside: int, smallest: int | None, cause: Infeasible | None
) -> Infeasible:
    reached = planner.archive.smallest().peak + outside
    least = max(reached, cause.smallest_bytes + outside if cause else 0)
    if smallest is not None and cause is None:
        least = max(least, smallest)
    found = planner.smallest(0.0)
    least = int(least * (1 + 2 * SPARE)) + 1
    return Infeasible(
        f"no plan found within {format_size(budget)}: the smallest budget reached is {format_size(least)}, "
        f"set by {planner.problem.label(found.node)}; a smaller batch, lower precision or a leaner optimizer "
        "would lower it, and change the numbers",
        least,
    )


def _moves(
    program: Program, order: Sequence[int], schedule: Schedule, listed: Timeline, before: Timeline, after: Timeline,
    base_cost: float, nodes: Sequence[object],
) -> tuple[Move, ...]:  # fmt: skip
    """What was done, in the order it was done: the order (early updates included), then recomputation."""
    runs = Counter(schedule)
    again = sum(count - 1 for count in runs.values())
    extra = sum((count - 1) * nodes[node].cost for node, count in runs.items())  # type: ignore[attr-defined]
    moves = [Move("order and early updates", len(order), max(0, listed.chunk_peak - before.chunk_peak), 0.0)]
    if again:
        moves.append(Move("recompute", again, max(0, before.chunk_peak - after.chunk_peak), extra))
    return tuple(moves)
