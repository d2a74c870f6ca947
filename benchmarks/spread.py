"""`make bench-spread`: by how much plain TensorFlow's own peak differs from run to run.

    python -m benchmarks.spread [--runs N] [NAME ...]

Each model is run as it is in some processes, one after another, and each run's peak is the largest of five steps after
two. No range that is narrower than what these differ by holds them all. Without names: the models whose peak was
outside its predicted range in benchmarks/results/predict.json. Writes benchmarks/results/spread.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.children import run_child
from benchmarks.predict import RANGE_WITHIN
from benchmarks.predict import RESULTS as PREDICTED
from lowtide.units import format_size

RESULTS = Path(__file__).parent / "results" / "spread.json"
RUNS = 6


def chosen(names: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of the predictions: those that are named, or were outside their range."""
    rows = [row for row in json.loads(PREDICTED.read_text())["rows"] if "error" not in row]
    return [row for row in rows if (row["name"] in names if names else not row["inside"])]


def measure(row: dict[str, Any], runs: int) -> dict[str, Any]:
    found = [run_child("benchmarks.predict_child", row["name"], str(row["batch"]), "run") for _ in range(runs)]
    peaks = sorted(max(answer["peaks_bytes"]) for answer in found)
    about = {key: row[key] for key in ("name", "batch", "low_bytes", "high_bytes")}
    return {**about, "peaks_bytes": peaks, "spread": peaks[-1] / peaks[0] - 1, "versions": found[0]["versions"]}


def show(rows: Sequence[dict[str, Any]], console: Console) -> None:
    table = Table(box=None, padding=(0, 1))
    for name in ("model", "smallest", "largest", "differ by", "predicted"):
        table.add_column(name, justify="left" if name == "model" else "right", no_wrap=True)
    for row in rows:
        low, high = format_size(row["low_bytes"]), format_size(row["high_bytes"])
        first, last = format_size(row["peaks_bytes"][0]), format_size(row["peaks_bytes"][-1])
        table.add_row(row["name"], first, last, f"{row['spread']:.0%}", f"{low} to {high}")
    console.print(table)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.spread", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=RUNS, help=f"of each model (default {RUNS})")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the zoo; results are not written")
    options = parser.parse_args(arguments)
    console = Console(width=100)
    todo = chosen(options.names)
    rows = [measure(row, options.runs) for row in track(todo, "running", console=console, transient=True)]
    show(rows, console)
    wider = sum(row["spread"] > RANGE_WITHIN for row in rows)
    console.print(f"{wider} of {len(rows)} differ by more than {RANGE_WITHIN:.0%} from run to run")
    if not options.names:
        RESULTS.write_text(json.dumps({"runs": options.runs, "rows": rows}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
