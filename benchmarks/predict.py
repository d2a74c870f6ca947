"""`make bench-predict`: every model of the zoo predicted, then really run on TensorFlow's allocator, and compared.

    python -m benchmarks.predict [--only NAME ... [--merge]] [--quick] [--all] [--plain-of-before]

Prints a table as it goes and writes benchmarks/results/predict.json. Each model is run in processes of its own, one at
a time: once in Lowtide's fixed order, and five times plainly, since the habits of a plain run differ from process to
process more than its steps do; a run's peak is the largest of five steps after two. Then the simulator's own time is
measured on Programs of growing size. About 45 minutes; `--quick` takes five. Plain TensorFlow's peaks do not depend on
Lowtide: `--plain-of-before` takes them from the results that are there, where those are of the same versions, and needs
a quarter of the time.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.children import run_child
from benchmarks.growth import growth_curve
from lowtide.units import format_size

RESULTS = Path(__file__).parent / "results" / "predict.json"
REQUESTED_WITHIN, CHUNKS_WITHIN, RANGE_WITHIN, SECONDS_WITHIN = 0.005, 0.02, 0.15, 2.0
PLAIN_RUNS = 5
QUICK = frozenset({"cnn", "unet", "lstm", "gpt", "gan", "custom-keras", "mlp"})
SLOW_TO_TRACE = frozenset({"nasnetmobile", "inceptionv3", "xception", "convnexttiny", "efficientnetb0"})
"""Minutes each, nearly all of it TensorFlow tracing: with --all only."""


def entries() -> list[tuple[str, int]]:
    """Names and batches of the zoo, asked in a child so that this process stays without TensorFlow."""
    code = "import json; from benchmarks.zoo import ENTRIES; print(json.dumps([(e.name, e.batch) for e in ENTRIES]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [(name, batch) for name, batch in json.loads(done.stdout.splitlines()[-1])]


def usual(listed: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    """Each model at its largest batch, but for those that take minutes to trace."""
    largest = dict(sorted(listed, key=lambda entry: entry[1]))
    return [(n, b) for n, b in listed if largest[n] == b and n not in SLOW_TO_TRACE]


def measure(name: str, batch: int, before: dict[str, Any] | None = None) -> dict[str, Any]:
    """One row: errors of the fixed order, and the plain range against the peaks of five runs, or of those of before."""
    fixed = run_child("benchmarks.predict_child", name, str(batch), "fixed")
    known = before is not None and before.get("versions") == fixed.get("versions")
    runs = 0 if known else PLAIN_RUNS
    plain = [run_child("benchmarks.predict_child", name, str(batch), "plain") for _ in range(runs)]
    if errors := [answer["error"] for answer in (fixed, *plain) if "error" in answer]:
        return {"name": name, "batch": batch, "error": errors[0]}
    peaks = before["peaks_bytes"] if known and before else sorted(max(answer["peaks_bytes"]) for answer in plain)
    resident = fixed["measured_resident_bytes"]
    predicted = fixed["predicted_requested_step_bytes"] + resident
    measured = fixed["measured_requested_step_bytes"] + resident
    return {
        **fixed,
        "peaks_bytes": peaks,
        "runs_differ_by": peaks[-1] / peaks[0] - 1,
        "requested_error": predicted / measured - 1,
        "step_error": fixed["predicted_requested_step_bytes"] / fixed["measured_requested_step_bytes"] - 1,
        "chunk_error": fixed["predicted_peak_bytes"] / fixed["measured_peak_bytes"] - 1,
        "range_width": fixed["high_bytes"] / fixed["low_bytes"] - 1,
        "inside": fixed["low_bytes"] <= peaks[-1] <= fixed["high_bytes"],
    }


def failures(row: dict[str, Any]) -> list[str]:
    if "error" in row:
        return [row["error"]]
    checks = (
        ("requested", abs(row["requested_error"]) <= REQUESTED_WITHIN),
        ("chunks", abs(row["chunk_error"]) <= CHUNKS_WITHIN),
        ("outside range", row["inside"]),
        ("range too wide", row["range_width"] <= RANGE_WITHIN + 5e-4),
    )
    return [name for name, good in checks if not good]


def show(rows: Sequence[dict[str, Any]], console: Console) -> None:
    table = Table(box=None, padding=(0, 1))
    for name in ("model", "batch", "ops", "peak", "requested", "chunks", "plain range", "five runs", ""):
        table.add_column(name, justify="left" if name in ("model", "") else "right", no_wrap=True)
    for row in rows:
        bad = ", ".join(failures(row))
        if "error" in row:
            table.add_row(row["name"], str(row["batch"]), "", "", "", "", "", "", f"[red]{bad[:40]}[/]")
            continue
        low, high = row["low_bytes"] / 2**20, row["high_bytes"] / 2**20
        table.add_row(
            row["name"],
            str(row["batch"]),
            f"{row['ops']:,}",
            format_size(row["measured_peak_bytes"]),
            f"{row['requested_error']:+.3%}",
            f"{row['chunk_error']:+.2%}",
            f"{low:.1f}-{high:.1f}",
            f"{row['peaks_bytes'][0] / 2**20:.1f}-{row['peaks_bytes'][-1] / 2**20:.1f}",
            f"[red]{bad}[/]" if bad else "[green]ok[/]",
        )
    console.print(table)


def summary(rows: Sequence[dict[str, Any]], curve: Sequence[dict[str, Any]]) -> dict[str, Any]:
    good = [row for row in rows if "error" not in row]
    return {
        "pairs": len(rows),
        "failed_to_run": len(rows) - len(good),
        "requested_within_half_percent": sum(abs(r["requested_error"]) <= REQUESTED_WITHIN for r in good),
        "chunks_within_two_percent": sum(abs(r["chunk_error"]) <= CHUNKS_WITHIN for r in good),
        "plain_inside_range": sum(r["inside"] for r in good),
        "range_within_15_percent": sum(r["range_width"] <= RANGE_WITHIN + 5e-4 for r in good),
        "runs_that_differ_by_more_than_15_percent": sum(r["runs_differ_by"] > RANGE_WITHIN for r in good),
        "median_requested_error": statistics.median(abs(r["requested_error"]) for r in good),
        "median_chunk_error": statistics.median(abs(r["chunk_error"]) for r in good),
        "worst_chunk_error": max((r["chunk_error"] for r in good), key=abs),
        "under_estimates_above_a_thousandth": sum(r["chunk_error"] < -1e-3 for r in good),
        "under_estimates_above_two_percent": sum(r["chunk_error"] < -CHUNKS_WITHIN for r in good),
        "resnet50_own_seconds": next((r["own_seconds"] for r in good if r["name"] == "resnet50"), None),
        "growth": list(curve),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.predict", description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these models only; results are not written")
    parser.add_argument("--merge", action="store_true", help="with --only: write them among the results of before")
    parser.add_argument("--quick", action="store_true", help="a few models only; results are not written")
    parser.add_argument("--all", action="store_true", help="every batch, and the models that take minutes to trace")
    parser.add_argument("--plain-of-before", action="store_true", help="plain runs as the results of before have them")
    options = parser.parse_args(arguments)
    if options.merge and not (options.only and RESULTS.exists()):
        parser.error("--merge needs --only and results of before")
    console = Console(width=130)
    wanted = entries() if options.all else usual(entries())
    if options.only or options.quick:
        wanted = [(n, b) for n, b in wanted if n in (options.only or QUICK)]
    before = rows_of_before() if options.plain_of_before else {}
    rows = []
    started = time.time()
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("measuring", total=len(wanted))
        for name, batch in wanted:
            progress.update(task, description=f"{name} at batch {batch}")
            rows.append(measure(name, batch, before.get((name, batch))))
            bad = failures(rows[-1])
            progress.console.print(f"{name} at batch {batch}: {', '.join(bad) if bad else 'ok'}")
            progress.advance(task)
    show(rows, console)
    if options.merge:
        write_among(rows)
    if options.only:
        return code_for(rows)
    curve = growth_curve()
    for point in curve:
        console.print(f"{point['ops']:>7,} ops: {point['seconds']:.2f} s, {point['microseconds_per_op']:.0f} us an op")
    totals = summary(rows, curve)
    console.print({key: value for key, value in totals.items() if key != "growth"})
    if not options.quick:
        RESULTS.parent.mkdir(exist_ok=True)
        versions = {"python": platform.python_version(), **(rows[0].get("versions") or {})}
        document = {"seconds": round(time.time() - started), "versions": versions, "summary": totals, "rows": rows}
        RESULTS.write_text(json.dumps(document, indent=1) + "\n")
        console.print(f"written to {RESULTS.relative_to(Path.cwd())}" if RESULTS.is_relative_to(Path.cwd()) else "")
    return code_for(rows)


def code_for(rows: Sequence[dict[str, Any]]) -> int:
    return 3 if any(failures(row) for row in rows) else 0


def rows_of_before() -> dict[tuple[str, int], dict[str, Any]]:
    """The rows of the results that are there, by model and batch, but for those that failed."""
    rows = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    return {(row["name"], row["batch"]): row for row in rows if "error" not in row}


def write_among(rows: Sequence[dict[str, Any]]) -> None:
    """These results in place of those of before, and all totals anew."""
    document = json.loads(RESULTS.read_text())
    new = {(row["name"], row["batch"]): row for row in rows}
    kept = [new.pop((row["name"], row["batch"]), row) for row in document["rows"]]
    document["rows"] = [*kept, *new.values()]
    document["summary"] = summary(document["rows"], document["summary"]["growth"])
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
