"""Program + budget -> Plan: the schedule, proven on the simulator before it is believed.

The planner works on requested bytes, a limit bites on chunks. So the plan is made for a target below the budget,
simulated with its copies on the allocator's model, and made again for a smaller target until its chunks fit.
Infeasible is an answer too.
"""

from __future__ import annotations

from collections import Counter
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
    points = {}
    for point in planner.curve(seconds):
        points[round((point.peak + outside) / before.chunk_peak, 2)] = point  # one a percent: the cheapest of it
    smallest = planner.smallest(0.0)
    return {
        "curve": [
            {
                "budget_bytes": point.peak + outside,
                "share": (point.peak + outside) / before.chunk_peak,
                "slowdown": point.cost / planner.base.cost - 1,
            }
            for _, point in sorted(points.items(), reverse=True)
        ],
        "smallest": {"budget_bytes": smallest.peak + outside, "op": planner.problem.label(smallest.node)},
    }


def make_plan(
    program: Program, budget: int, batch: int | None = None, seconds: float = 20.0, report: Report = silent
) -> Plan:
    """The cheapest plan found whose chunks stay within `budget`, residents included; `Infeasible` if there is none."""
    size = program.batch if batch is None else batch
    deadline = monotonic() + seconds
    search = _Search(program, size, budget)
    target = search.target
    for attempt in range(ATTEMPTS):
        left = max(1.0, deadline - monotonic())
        try:
            solution = search.planner.solve(target, left * SHARE_OF_FIRST if attempt == 0 else left / 2, report)
        except Infeasible:
            break
        plan = search.plan(solution.schedule, solution.cost, solution.gap)
        over = plan.peak - search.room
        if over <= 0:
            return plan
        target -= max(over, int(target * FIRST_STEP_DOWN * 2**attempt))
    smallest = search.planner.smallest(0.0)
    plan = search.plan(smallest.schedule, smallest.cost, 1.0)
    if plan.peak <= search.room:
        return plan
    raise search.infeasible(plan.peak, smallest.node)


class _Search:
    """One step, one batch, one budget: what a plan has to fit, and what a schedule comes to."""

    def __init__(self, program: Program, size: int, budget: int) -> None:
        self.program, self.size, self.budget = program, size, budget
        self.order = tidy_order(program, size)
        self.before = simulate(program, size, self.order)
        self.listed = simulate(program, size)
        problem = problem_of(program, size, self.order)
        self.planner = Planner(problem)
        ahead = BATCHES_AHEAD * sum(program.values[value].bytes(size) for value in program.inputs)
        self.spare = int(budget * SPARE) + ahead
        self.room = budget - self.spare
        outside = self.before.chunk_resident - problem.resident_bytes  # in use and not in the game
        self.target = min(self.planner.base.peak, self.room - outside)

    def plan(self, schedule: Schedule, cost: float, gap: float) -> Plan:
        planned = with_copies(self.program, self.order, schedule)
        timeline = simulate(planned, self.size)
        base = self.planner.base.cost
        return Plan(
            self.budget, tuple(self.order), schedule, planned, timeline, self.before, cost, base, gap,
            self._moves(schedule, timeline),
        )  # fmt: skip

    def _moves(self, schedule: Schedule, after: Timeline) -> tuple[Move, ...]:
        """What was done, in the order it was done: the order (early updates included), then recomputation."""
        runs = Counter(schedule)
        again = sum(count - 1 for count in runs.values())
        nodes = self.planner.problem.nodes
        extra = sum((count - 1) * nodes[node].cost for node, count in runs.items())
        saved = max(0, self.listed.chunk_peak - self.before.chunk_peak)
        moves = [Move("order and early updates", len(self.order), saved, 0.0)]
        if again:
            moves.append(Move("recompute", again, max(0, self.before.chunk_peak - after.chunk_peak), extra))
        return tuple(moves)

    def infeasible(self, peak: int, node: int) -> Infeasible:
        """The answer when there is no plan: the smallest budget for which there is, and the op that sets it."""
        smallest = int((peak + self.spare) * (1 + SPARE)) + 1
        return Infeasible(
            f"no plan found within {format_size(self.budget)}: the smallest budget reached is "
            f"{format_size(smallest)}, set by {self.planner.problem.label(node)}; a smaller batch, lower precision "
            "or a leaner optimizer would lower it, and change the numbers",
            smallest,
        )
