"""Plan <-> file. The Program in it is the one with the copies, so a plan can be read without what it was made from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from lowtide.plan.account import Move
from lowtide.plan.plan import Plan
from lowtide.program.files import load_artifact, write_artifact
from lowtide.program.store import program_from_data, program_to_data
from lowtide.program.verify import verify
from lowtide.simulate.store import timeline_from_data, timeline_to_data

KIND, VERSION = "plan", 1


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    body = {
        "budget": plan.budget,
        "order": plan.order,
        "schedule": plan.schedule,
        "program": program_to_data(plan.program),
        "timeline": timeline_to_data(plan.timeline),
        "before": timeline_to_data(plan.before),
        "seconds": [plan.seconds, plan.seconds_before],
        "gap": plan.gap,
        "moves": [[move.name, move.count, move.saved, move.seconds] for move in plan.moves],
    }
    write_artifact(path, KIND, VERSION, body)


def load_plan(path: str | os.PathLike[str]) -> Plan:
    return load_artifact(path, KIND, VERSION, _plan)


def _plan(data: Mapping[str, Any]) -> Plan:
    program = program_from_data(data["program"])
    verify(program)
    seconds, seconds_before = data["seconds"]
    plan = Plan(
        data["budget"],
        tuple(data["order"]),
        tuple(data["schedule"]),
        program,
        timeline_from_data(data["timeline"]),
        timeline_from_data(data["before"]),
        seconds,
        seconds_before,
        data["gap"],
        tuple(Move(*row) for row in data["moves"]),
    )
    if len(plan.schedule) != len(program.ops):
        raise ValueError(f"a schedule of {len(plan.schedule)} executions for {len(program.ops)} ops")
    return plan
