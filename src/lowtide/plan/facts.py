"""A Plan in numbers, for a report: bytes are integers, and their keys end in `_bytes`."""

from __future__ import annotations

from typing import Any

from lowtide.plan.plan import Plan
from lowtide.simulate.plain import PlainRange


def plan_facts(plan: Plan, plain: PlainRange) -> dict[str, Any]:
    """What a plan does and costs, beside the range of `plain` TensorFlow."""
    return {
        "budget_bytes": plan.budget,
        "peak_bytes": plan.peak,
        "without_bytes": plan.before.chunk_peak,
        "plain_low_bytes": plain.low,
        "plain_high_bytes": plain.high,
        "resident_bytes": plan.timeline.chunk_resident,
        "batch": plan.timeline.batch,
        "slowdown": plan.slowdown,
        "gap": plan.gap,
        "moves": _moves(plan),
        "unknown": [f"{note.what}: {note.why}" for note in plan.program.notes if note.treatment != "compiled"],
    }


def _moves(plan: Plan) -> list[dict[str, Any]]:
    """Each with the peak that is left after it."""
    peak = plan.peak
    moves = []
    for move in reversed(plan.moves):
        moves.append(
            {
                "name": move.name,
                "count": move.count,
                "peak_bytes": peak,
                "saved_bytes": move.saved,
                "seconds": move.seconds,
                "exact": True,
            }
        )
        peak += move.saved
    return moves[::-1]
