"""Planning in a process of its own: OR-Tools and TensorFlow do not share one.

Both bring their own copies of the same C++ libraries, and a solver called in a process that has TensorFlow loaded may
crash. `python -m lowtide.plan.aside FOLDER` plans the Program in FOLDER/program.lowtide as FOLDER/request.json says.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from lowtide.errors import Infeasible, LowtideError
from lowtide.plan.bridge import with_copies
from lowtide.plan.plan import Move, Plan, make_plan
from lowtide.program import Program, load_program, save_program
from lowtide.simulate import simulate


def make_plan_aside(program: Program, budget: int, batch: int, seconds: float) -> Plan:
    """As `make_plan`, for callers that have TensorFlow loaded."""
    with tempfile.TemporaryDirectory(prefix="lowtide-plan-") as name:
        folder = Path(name)
        save_program(program, folder / "program.lowtide")
        (folder / "request.json").write_text(json.dumps({"budget": budget, "batch": batch, "seconds": seconds}))
        command = [sys.executable, "-m", "lowtide.plan.aside", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if not (folder / "answer.json").exists():
            words = done.stderr.strip().splitlines()
            raise LowtideError(f"planning failed ({words[-1] if words else f'exit code {done.returncode}'})")
        answer = json.loads((folder / "answer.json").read_text())
    if "infeasible" in answer:
        raise Infeasible(answer["infeasible"], answer["smallest"])
    order, schedule = tuple(answer["order"]), tuple(answer["schedule"])
    planned = with_copies(program, order, schedule)
    return Plan(
        budget,
        order,
        schedule,
        planned,
        simulate(planned, batch),
        simulate(program, batch, order),
        answer["seconds"],
        answer["seconds_before"],
        answer["gap"],
        tuple(Move(*move) for move in answer["moves"]),
    )


def main(name: str) -> None:
    folder = Path(name)
    request = json.loads((folder / "request.json").read_text())
    program = load_program(folder / "program.lowtide")
    try:
        plan = make_plan(program, request["budget"], request["batch"], request["seconds"])
    except Infeasible as error:
        answer = {"infeasible": str(error), "smallest": error.smallest_bytes}
    else:
        answer = {
            "order": plan.order,
            "schedule": plan.schedule,
            "seconds": plan.seconds,
            "seconds_before": plan.seconds_before,
            "gap": plan.gap,
            "moves": [[move.name, move.count, move.saved, move.seconds] for move in plan.moves],
        }
    (folder / "answer.json").write_text(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1])
