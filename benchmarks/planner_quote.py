"""Quotes benchmarks/results/planner.json between the marks in README.md: `python -m benchmarks.planner_quote`."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

from benchmarks.planner_suite import BUDGETS, RESULTS, TARGETS, not_reached
from benchmarks.quote import put, versions_of


def quoted(document: dict[str, Any]) -> str:
    rows = document["rows"]
    versions = versions_of(document)
    most = max(row["seconds"] for row in rows)
    lines = [
        f"Time added in percent, by budget in percent of the base peak, and the proven bound ({versions}, two cores):",
        "",
        f"| graph | nodes | {' | '.join(f'{100 * budget:.0f} %' for budget in BUDGETS)} | smallest reached |",
        "|---" * (len(BUDGETS) + 3) + "|",
        *(_line(name, list(found)) for name, found in groupby(rows, key=lambda row: row["name"])),
        "",
        f"{document['seconds']:g} s a solve, other limits for the two largest; the longest took {most:.1f} s.",
        f"Published at 90 and 80 %: {_published()}.",
        "",
        "Not reached: " + ("; ".join(not_reached(rows)) or "nothing") + ".",
    ]
    return "\n".join(lines) + "\n"


def _line(name: str, rows: list[dict[str, Any]]) -> str:
    by_budget = {row["fraction"]: row for row in rows}
    smallest = min((row for row in rows if row["feasible"]), key=lambda row: row["fraction"])
    cells = [_cell(by_budget.get(budget)) for budget in BUDGETS]
    last = "" if smallest["fraction"] in BUDGETS else f"{100 * smallest['fraction']:.1f} %: {_cell(smallest)}"
    return f"| {name} | {rows[0]['nodes']:,} | {' | '.join(cells)} | {last} |"


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return ""
    if not row["feasible"]:
        return "impossible" if row["proven"] else "none found"
    cost, bound = f"{row['tdi_percent']:.2f}", f"{row['lower_bound_percent']:.2f}"
    proven = row["tdi_percent"] - row["lower_bound_percent"] < 1e-6
    return f"{cost}, optimal" if proven else f"{cost} (bound {bound})"


def _published() -> str:
    return ", ".join(f"{name} {first} and {second}" for name, (first, second) in TARGETS.items())


def main() -> None:
    put("bench-planner", quoted(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
