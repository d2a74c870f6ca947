"""`make bench-predict`: every model of the zoo predicted, then really run on TensorFlow's allocator, and compared.

    python -m benchmarks.predict [--parts fixed plain growth] [--only NAME ...] [--quick] [--all]

`fixed`: each model predicted, and run in Lowtide's fixed order. `plain`: each run five times as TensorFlow runs it, in
processes of their own, one at a time, since the habits of a plain run differ from process to process more than its
steps do; a run's peak is the largest of five steps after two. It needs a quiet machine. `growth`: the simulator's own
time on Programs of growing size. Prints a table and writes benchmarks/results/predict.json, beside the parts and models
that are there and are of the same versions. About 45 minutes, three quarters of it for `plain`, which does not depend
on Lowtide; `--quick` takes five.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
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
PARTS = ("fixed", "plain", "growth")
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


def fixed(name: str, batch: int) -> dict[str, Any]:
    return run_child("benchmarks.predict_child", name, str(batch), "fixed")


def plain(name: str, batch: int) -> dict[str, Any]:
    runs = [run_child("benchmarks.predict_child", name, str(batch), "plain") for _ in range(PLAIN_RUNS)]
    if errors := [answer["error"] for answer in runs if "error" in answer]:
        return {"error": errors[0]}
    return {"peaks_bytes": sorted(max(answer["peaks_bytes"]) for answer in runs), "versions": runs[0]["versions"]}


MEASURE: dict[str, Callable[[str, int], dict[str, Any]]] = {"fixed": fixed, "plain": plain}


def row_of(name: str, batch: int, parts: Sequence[str], before: dict[str, Any]) -> dict[str, Any]:
    """One row: what is measured now in place of what is known from before, if that is of the same versions."""
    found = [MEASURE[part](name, batch) for part in parts]
    if errors := [answer["error"] for answer in found if "error" in answer]:
        return {"name": name, "batch": batch, "error": errors[0]}
    versions = found[0]["versions"]
    row = before if before.get("versions") == versions else {}
    for answer in found:
        row = {**row, **answer}
    if not {"peaks_bytes", "measured_peak_bytes"} <= row.keys():
        missing = "plain" if "peaks_bytes" not in row else "fixed"
        return {**row, "name": name, "batch": batch, "error": f"--parts {missing} was not run with these versions"}
    return {**row, **compared(row)}


def compared(row: dict[str, Any]) -> dict[str, Any]:
    """Errors of the fixed order, and the plain range against the peaks of five runs."""
    peaks, resident = row["peaks_bytes"], row["measured_resident_bytes"]
    predicted = row["predicted_requested_step_bytes"] + resident
    measured = row["measured_requested_step_bytes"] + resident
    return {
        "runs_differ_by": peaks[-1] / peaks[0] - 1,
        "requested_error": predicted / measured - 1,
        "step_error": row["predicted_requested_step_bytes"] / row["measured_requested_step_bytes"] - 1,
        "chunk_error": row["predicted_peak_bytes"] / row["measured_peak_bytes"] - 1,
        "range_width": row["high_bytes"] / row["low_bytes"] - 1,
        "inside": row["low_bytes"] <= peaks[-1] <= row["high_bytes"],
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


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    good = [row for row in rows if "error" not in row]
    if not good:
        return {"pairs": len(rows), "failed_to_run": len(rows)}
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
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.predict", description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="of the benchmark (default: all)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these models only; the others' results stay")
    parser.add_argument("--quick", action="store_true", help="a few models only; results are not written")
    parser.add_argument("--all", action="store_true", help="every batch, and the models that take minutes to trace")
    options = parser.parse_args(arguments)
    console = Console(width=130)
    wanted = entries() if options.all else usual(entries())
    if options.only or options.quick:
        wanted = [(n, b) for n, b in wanted if n in (options.only or QUICK)]
    document = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"rows": [], "growth": []}
    if "growth" in options.parts:
        document["growth"] = growth_curve()
        for point in document["growth"]:
            words = f"{point['ops']:>7,} ops: {point['seconds']:.2f} s, {point['microseconds_per_op']:.0f} us an op"
            console.print(words, highlight=False)
    rows = []
    for row in measured(wanted, [part for part in options.parts if part in MEASURE], document["rows"], console):
        rows.append(row)
        if not options.quick:
            write(document, [row])
    show(rows, console)
    console.print(summary(rows))
    return 3 if any(failures(row) for row in rows) else 0


def measured(
    wanted: Sequence[tuple[str, int]], parts: Sequence[str], rows: Sequence[dict[str, Any]], console: Console
) -> Iterator[dict[str, Any]]:
    before = {(row["name"], row["batch"]): row for row in rows if "error" not in row}
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("measuring", total=len(wanted))
        for name, batch in wanted if parts else ():
            progress.update(task, description=f"{name} at batch {batch}")
            row = row_of(name, batch, parts, before.get((name, batch), {}))
            progress.console.print(f"{name} at batch {batch}: {', '.join(failures(row)) or 'ok'}")
            progress.advance(task)
            yield row


def write(document: dict[str, Any], rows: Sequence[dict[str, Any]]) -> None:
    """These results in place of those of before, and all totals anew."""
    new = {(row["name"], row["batch"]): row for row in rows}
    kept = [new.pop((row["name"], row["batch"]), row) for row in document["rows"]]
    document["rows"] = [*kept, *new.values()]
    document["summary"] = summary(document["rows"])
    versions: dict[str, str] = next((row["versions"] for row in document["rows"] if "error" not in row), {})
    document["versions"] = {"python": platform.python_version(), **versions}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
