"""Solve one published graph: `python -m benchmarks.planner GRAPH.json --budget 0.8 --seconds 10`.

The file format and the rules of the game are those of Checkmate and Moccasin: a list of nodes, each with a cost,
the bytes of its one value, and the indices of its inputs. The budget is a fraction of the base peak.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from time import monotonic
from typing import Any, NoReturn

STARTED = monotonic()

from lowtide.errors import BadFile, BadUse, Infeasible, LowtideError  # noqa: E402  (the clock starts first)
from lowtide.plan import Node, Planner, Problem, Value, check  # noqa: E402

OVERHEAD = 0.35  # seconds of interpreter start and last checks that the clock above does not see


def read_problem(path: str) -> Problem:
    """The Problem in a graph file, or `BadFile` saying what is wrong with it."""
    try:
        data = json.loads(Path(path).read_text())
    except OSError as error:
        raise BadFile(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise BadFile(f"{path}: not JSON ({error})") from error
    return as_problem(data, path)


def as_problem(data: Any, path: str = "graph") -> Problem:
    """The Problem that a graph in the published format stands for."""
    nodes = data.get("nodes") if isinstance(data, dict) else None
    if not isinstance(nodes, list) or not nodes:
        raise BadFile(f'{path}: expected {{"name": ..., "nodes": [...]}} with at least one node')
    for i, node in enumerate(nodes):
        _check_node(path, i, node)
    made = tuple(Node(cost=n["cost"], inputs=tuple(n["inputs"]), outputs=(i,)) for i, n in enumerate(nodes))
    name = str(data.get("name") or Path(path).stem)
    return Problem(made, tuple(Value(n["bytes"]) for n in nodes), name)


def _check_node(path: str, i: int, node: Any) -> None:
    if not isinstance(node, dict) or not {"cost", "bytes", "inputs"} <= node.keys():
        raise BadFile(f"{path}: node {i}: expected an object with cost, bytes and inputs, got {node!r}")
    cost, size, inputs = node["cost"], node["bytes"], node["inputs"]
    if isinstance(cost, bool) or not isinstance(cost, int | float) or not math.isfinite(cost) or cost < 0:
        raise BadFile(f"{path}: node {i}: cost is {cost!r}, expected a number, zero or more")
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise BadFile(f"{path}: node {i}: bytes is {size!r}, expected a whole number, zero or more")
    if not isinstance(inputs, list) or any(isinstance(j, bool) or not isinstance(j, int) for j in inputs):
        raise BadFile(f"{path}: node {i}: inputs is {inputs!r}, expected a list of node indices")
    if any(not 0 <= j < i for j in inputs):
        raise BadFile(f"{path}: node {i}: inputs are {inputs}, expected nodes before it (0 to {i - 1})")


def measure(problem: Problem, fraction: float, seconds: float) -> tuple[dict[str, Any], list[int] | None, str]:
    """The figures of one solve, its schedule if there is one, and what to say if there is none."""
    start = monotonic()
    planner = Planner(problem)
    budget = math.floor(planner.base.peak * fraction + 1e-9)
    base = planner.base
    row: dict[str, Any] = {"name": problem.name, "base_peak": base.peak, "budget": budget, "base_cost": base.cost}
    try:
        solution = planner.solve(budget, max(0.1, seconds - (monotonic() - start)))
    except Infeasible as error:
        row |= {"peak": error.smallest_bytes, "cost": None, "tdi_percent": None, "lower_bound_percent": None}
        row |= {"seconds": round(monotonic() - start, 3), "feasible": False}
        return _ordered(row), None, str(error)
    checked = check(problem, solution.schedule, budget)
    row |= {"peak": checked.peak, "cost": checked.cost, "tdi_percent": _added(checked.cost, base.cost)}
    row |= {"lower_bound_percent": _added(solution.lower_bound, base.cost), "feasible": True}
    row["seconds"] = round(monotonic() - start, 3)
    return _ordered(row), list(solution.schedule), ""


KEYS = ["name", "base_peak", "budget", "peak", "base_cost", "cost", "tdi_percent", "lower_bound_percent"]
KEYS += ["seconds", "feasible"]


def _ordered(row: dict[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in KEYS}


def _added(cost: float, base: float) -> float:
    return round(100 * (cost - base) / base, 6) if base else 0.0


def _print_table(row: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=row["name"], show_header=False)
    for key in KEYS[1:]:
        value = row[key]
        table.add_row(key, f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value))
    Console().print(table)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadUse(f"{self.prog}: {message}")


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = _Parser(prog="python -m benchmarks.planner", description=__doc__)
    parser.add_argument("graph", metavar="GRAPH.json")
    parser.add_argument("--budget", type=float, default=0.8, help="a fraction of the base peak (default 0.8)")
    parser.add_argument("--seconds", type=float, default=10.0, help="for the whole call (default 10)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--schedule", metavar="OUT.json", help="write the node indices executed here")
    args = parser.parse_args(argv)
    if not (math.isfinite(args.budget) and args.budget > 0):
        raise BadUse(f"--budget {args.budget}: expected a fraction of the base peak above zero, such as 0.8")
    if not (math.isfinite(args.seconds) and args.seconds > 0):
        raise BadUse(f"--seconds {args.seconds}: expected a number above zero")
    return args


def main(argv: list[str] | None = None) -> int:
    try:
        args = _arguments(argv)
        problem = read_problem(args.graph)
        row, schedule, why = measure(problem, args.budget, args.seconds - (monotonic() - STARTED) - OVERHEAD)
        if schedule is not None and args.schedule:
            Path(args.schedule).write_text(json.dumps(schedule))
    except LowtideError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"{error.filename}: cannot be written ({error.strerror})", file=sys.stderr)
        return BadFile.exit_code
    if args.json:
        print(json.dumps(row))
    else:
        _print_table(row)
    if why:
        print(why, file=sys.stderr)
        return Infeasible.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
