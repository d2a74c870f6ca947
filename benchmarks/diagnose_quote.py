"""Quotes benchmarks/results/diagnose.json between the marks in README.md: `python -m benchmarks.diagnose_quote`."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.diagnose import RESULTS
from benchmarks.quote import put, versions_of
from lowtide.units import format_size


def quoted(document: dict[str, Any]) -> str:
    versions = versions_of(document)
    lines = [
        f"Scripts, most of them after public issues, each with a bad and a good variant ({versions}):",
        "",
        "| cases | bad: line and cause named first | good: no problem above 5 % | recall | precision |",
        "|---|---|---|---|---|",
    ]
    for name, total in document["summary"].items():
        named = f"{total['line_and_cause_named']} of {total['cases']}"
        clean = f"{total['good_without_problem']} of {total['cases']}"
        lines.append(f"| {name} | {named} | {clean} | {total['recall']:.0%} | {total['precision']:.0%} |")
    missed = [row for row in document["rows"] if not (row["line_named"] and row["cause_named"])]
    said = ", ".join(f"{row['case']} ({(row['first'] or {'id': 'nothing'})['id']})" for row in missed)
    largest = max(document["rows"], key=lambda row: (row["first"] or {"bytes": 0})["bytes"])
    lines += ["", "The rules were written with these cases at hand: other scripts will fare worse."]
    lines.append(f"Missed: {said or 'none'}.")
    if kept := document["summary"]["all"]["reused_recordings"]:
        lines.append(f"{kept} of {2 * len(document['rows'])} runs were judged from recordings kept from earlier runs.")
    if largest["first"]:
        lines.append(f"Largest finding: {format_size(largest['first']['bytes'])}, {largest['case']}.")
    return "\n".join(lines) + "\n"


def main() -> None:
    put("bench-diagnose", quoted(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
