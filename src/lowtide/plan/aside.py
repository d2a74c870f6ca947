"""Planning in a process of its own: OR-Tools and TensorFlow do not share one.

Both bring their own copies of the same C++ libraries, and a solver called in a process that has TensorFlow loaded may
crash. `python -m lowtide.plan.aside FOLDER` plans the Program in FOLDER/program.lowtide as FOLDER/request.json says,
and writes FOLDER/plan.lowtide, or FOLDER/infeasible.json.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from lowtide.errors import Infeasible, LowtideError
from lowtide.plan.plan import Pattern, Plan, make_plan
from lowtide.plan.store import load_plan, save_plan
from lowtide.program import Program, load_program, save_program

MakePlan = Callable[[Program, int, int, Pattern | None], Plan]
"""(the step, a batch, how many batches more than usual may come to lie beside it, how a step of the same ops runs) ->
its plan."""

PROGRAM, REQUEST, PLAN, INFEASIBLE = "program.lowtide", "request.json", "plan.lowtide", "infeasible.json"


def make_plan_aside(
    program: Program,
    budget: int,
    batch: int,
    seconds: float,
    more_ahead: int = 0,
    like: Pattern | None = None,
) -> Plan:
    """As `make_plan`, for callers that have TensorFlow loaded."""
    with tempfile.TemporaryDirectory(prefix="lowtide-plan-") as name:
        folder = Path(name)
        save_program(program, folder / PROGRAM)
        request = {"budget": budget, "batch": batch, "seconds": seconds, "more_ahead": more_ahead, "like": like}
        (folder / REQUEST).write_text(json.dumps(request))
        command = [sys.executable, "-m", "lowtide.plan.aside", name]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if (folder / INFEASIBLE).exists():
            raise Infeasible(*json.loads((folder / INFEASIBLE).read_text()))
        if not (folder / PLAN).exists():
            words = done.stderr.strip().splitlines()
            raise LowtideError(f"planning failed ({words[-1] if words else f'exit code {done.returncode}'})")
        return load_plan(folder / PLAN)


def planning(budget: int, seconds: float) -> MakePlan:
    """How to plan whatever comes for a budget."""
    return lambda program, batch, more_ahead, like: make_plan_aside(program, budget, batch, seconds, more_ahead, like)


def main(name: str) -> None:
    folder = Path(name)
    request = json.loads((folder / REQUEST).read_text())
    if request["like"] is not None:
        request["like"] = Pattern(*map(tuple, request["like"]))
    try:
        plan = make_plan(load_program(folder / PROGRAM), **request)
    except Infeasible as error:
        (folder / INFEASIBLE).write_text(json.dumps([str(error), error.smallest_bytes]))
    else:
        save_plan(plan, folder / PLAN)


if __name__ == "__main__":
    main(sys.argv[1])
