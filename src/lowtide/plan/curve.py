"""Bytes against time over all budgets: a few plans from the base to the smallest found, each one simulated.

A point's budget is what `make_plan` would need to take that very plan: its simulated chunks, and what is kept spare.
A plan that was made for a budget is a point too, where it needs less than those.
"""

from __future__ import annotations

from typing import Any

from lowtide.plan.bridge import Costs, problem_of, with_copies
from lowtide.plan.costs import op_seconds
from lowtide.plan.plan import SETTLE, Plan, budget_for
from lowtide.plan.planner import Planner
from lowtide.plan.problem import Point
from lowtide.program import Program
from lowtide.simulate import simulate, tidy_order

POINTS = 10  # simulated and shown, at most


def plan_curve(
    program: Program,
    seconds: float = 20.0,
    batch: int | None = None,
    costs: Costs = op_seconds,
    found: Plan | None = None,
) -> dict[str, Any]:
    """The curve, and the smallest budget found with the op that sets it. `found` is a plan of the same Program."""
    size = program.batch if batch is None else batch
    order = tidy_order(program, size)
    before = simulate(program, size, order)
    planner = Planner(problem_of(program, size, order, costs))
    points = _spread(planner.curve(seconds, settle=SETTLE))
    known = [] if found is None else [(found.slowdown, found.budget)]
    for point in points:
        peak = simulate(with_copies(program, order, point.schedule), size).chunk_peak
        slowdown = point.cost / planner.base.cost - 1 if planner.base.cost else 0.0
        known.append((slowdown, budget_for(program, size, peak)))
    curve: list[dict[str, Any]] = []
    for slowdown, budget in sorted(known):
        if not curve or budget < curve[-1]["budget_bytes"]:  # in chunks, a dearer plan may save nothing
            curve.append({"budget_bytes": budget, "share": budget / before.chunk_peak, "slowdown": slowdown})
    smallest = planner.smallest(0.0)
    least = min(point["budget_bytes"] for point in curve)
    return {"curve": curve, "smallest": {"budget_bytes": least, "op": planner.problem.label(smallest.node)}}


def _spread(points: list[Point]) -> list[Point]:
    """At most `POINTS` of them, about evenly apart in bytes; the ends are among them."""
    low, high = points[0].peak, points[-1].peak
    slots: dict[int, Point] = {}
    for point in points:
        slot = (point.peak - low) * (POINTS - 1) // max(1, high - low)
        if slot not in slots or point.cost < slots[slot].cost:
            slots[slot] = point
    slots[0] = points[0]
    return list(slots.values())
