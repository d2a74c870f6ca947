"""Quotes benchmarks/results/predict.json between the marks in README.md: `python -m benchmarks.quote`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.predict import RESULTS, failures
from lowtide.units import format_size

README = Path(__file__).parent.parent / "README.md"


def put(mark: str, quoted: str) -> None:
    """Between the two marks of that name in the README, and nowhere else."""
    begin, end = f"<!-- {mark}:begin -->\n", f"<!-- {mark}:end -->"
    text = README.read_text()
    README.write_text(text[: text.index(begin) + len(begin)] + quoted + text[text.index(end) :])


def versions_of(document: dict[str, Any]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(document["versions"].items()))


def quoted(document: dict[str, Any]) -> str:
    total, rows = document["summary"], document["rows"]
    pairs = total["pairs"] - total["failed_to_run"]
    versions = versions_of(document)
    median = f"median error {total['median_requested_error']:.4%}"
    requested = f"{total['requested_within_half_percent']} of {pairs}; {median}"
    spread = f"median error {total['median_chunk_error']:.3%}, worst {total['worst_chunk_error']:+.1%}"
    chunks = f"{total['chunks_within_two_percent']} of {pairs}; {spread}"
    a_little, much = total["under_estimates_above_a_thousandth"], total["under_estimates_above_two_percent"]
    inside = f"{total['plain_inside_range']} of {pairs}"
    wide = f"{total['runs_that_differ_by_more_than_15_percent']} of {pairs}"
    growth = ", ".join(f"{point['ops']:,}: {point['seconds']:.1f} s" for point in document["growth"])
    lines = [
        f"{pairs} model and batch pairs ({versions}, two cores):",
        "",
        "| | target | reached |",
        "|---|---|---|",
        f"| fixed order, requested bytes | within 0.5 % on every pair | {requested} |",
        f"| fixed order, chunk bytes | within 2 % on every pair | {chunks} |",
        f"| plain run, largest peak of five runs | inside the range | {inside} |",
        f"| plain run, width of the range | 15 % at most | {total['range_within_15_percent']} of {pairs} |",
        f"| chunk bytes under-estimated | never | by more than 0.1 %: {a_little}, by more than 2 %: {much} |",
        f"| Lowtide's own time, ResNet50 | under 2 s | {total['resnet50_own_seconds']:.2f} s |",
        "",
        f"Models whose own five plain runs differ by more than 15 %: {wide}.",
        f"Own time by number of ops: {growth}.",
        "",
        "| model | batch | ops | peak | requested | chunks | missed |",
        "|---|---|---|---|---|---|---|",
        *(_line(row) for row in rows),
    ]
    return "\n".join(lines) + "\n"


def _line(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"| {row['name']} | {row['batch']} | | | | | {row['error'][:60]} |"
    numbers = f"{row['requested_error']:+.3%} | {row['chunk_error']:+.2%}"
    peak = format_size(row["measured_peak_bytes"])
    return f"| {row['name']} | {row['batch']} | {row['ops']:,} | {peak} | {numbers} | {', '.join(failures(row))} |"


def main() -> None:
    put("bench-predict", quoted(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
