"""Quotes results/run.json and results/page.json between the marks in README.md: `python -m benchmarks.run_quote`."""

from __future__ import annotations

import json
import statistics
from typing import Any

from benchmarks import page
from benchmarks.quote import put, versions_of
from benchmarks.run import KINDS, RAM_WITHIN, RESULTS, TIME_WITHIN, WAYS


def quoted(document: dict[str, Any]) -> str:
    versions = versions_of(document)
    ways = [way for way in WAYS if way != "plain"]
    where = f"{versions}; {document['machine'].partition(',')[0]}"
    lines = [
        f"Step time against the plain script, all taking turns in one run ({where}):",
        "",
        f"| script | plain step | {' | '.join(ways)} |",
        f"|---|---|{'---|' * len(ways)}",
    ]
    for kind, rows in document["kinds"].items():
        found = {row["way"]: row for row in rows}
        times = [_time(found[way]) if way in found else "" for way in ways]
        lines.append(f"| {KINDS[kind]} | {found['plain']['step_seconds'] * 1e3:.1f} ms | {' | '.join(times)} |")
    lines += ["", f"RAM over the plain script on the same allocator: {_ram(document)}."]
    bounds = f"at most {TIME_WITHIN:.0%} of step time outside detailed steps, at most {RAM_WITHIN / 1e6:.0f} MB"
    missed = "; ".join(document["not_reached"])
    near = "; ".join(document["too_near_to_tell"])
    said = [f"Not reached: {missed}." if missed else "Reached.", *([f"Too near to tell: {near}."] if near else [])]
    lines.append(f"Bounds for `lowtide run`: {bounds}. {' '.join(said)}")
    return "\n".join(lines) + "\n"


def _time(row: dict[str, Any]) -> str:
    error = row.get("time_error")
    return f"{row['time_overhead']:+.1%}" + (f" ± {error:.1%}" if error else "")


def _ram(document: dict[str, Any]) -> str:
    rows = {kind: {row["way"]: row for row in rows}["lowtide"] for kind, rows in document["kinds"].items()}
    return ", ".join(f"{row['over_plain_on_bfc_bytes'] / 1e6:+.0f} MB ({KINDS[kind]})" for kind, row in rows.items())


def page_quoted(document: dict[str, Any]) -> str:
    missed = "; ".join(document["not_reached"])
    usual, whole = (statistics.median(document[key]) for key in ("seconds", "seconds_to_the_last_chart"))
    said = f"Not reached: {missed}." if missed else "Bounds: 5 MB, two seconds."
    page = f"The page of a ResNet50 recording (`make bench-page`): {document['page_bytes'] / 1e6:.1f} MB"
    return f"{page}, open in {usual:.1f} s, its last chart drawn after {whole:.1f} s. {said}\n"


def main() -> None:
    parts = []
    if RESULTS.exists():
        parts.append(quoted(json.loads(RESULTS.read_text())))
    if page.RESULTS.exists():
        parts.append(page_quoted(json.loads(page.RESULTS.read_text())))
    put("bench-run", "\n".join(parts))


if __name__ == "__main__":
    main()
