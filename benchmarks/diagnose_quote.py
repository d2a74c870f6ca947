"""Quotes benchmarks/results/diagnose.json between the marks in README.md: `python -m benchmarks.diagnose_quote`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.diagnose import RESULTS
from lowtide.units import format_size

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- bench-diagnose:begin -->\n", "<!-- bench-diagnose:end -->"


def quoted(document: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in sorted(document["versions"].items()))
    lines = [
        f"Scripts after public issues, each with a bad and a good variant ({versions}):",
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
    text = README.read_text()
    if BEGIN not in text or not RESULTS.exists():
        return
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    README.write_text(text[:start] + quoted(json.loads(RESULTS.read_text())) + text[end:])


if __name__ == "__main__":
    main()
