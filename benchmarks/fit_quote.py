"""Quotes benchmarks/results/fit.json between the marks in README.md: `python -m benchmarks.fit_quote`."""

from __future__ import annotations

import json
import statistics
from typing import Any

from benchmarks.fit import MODELS, RESULTS, order_line, order_reached
from benchmarks.fit_times import TARGETS, times_missed
from benchmarks.quote import put, versions_of
from lowtide.units import format_size


def quoted(document: dict[str, Any]) -> str:
    """The parts that have been run."""
    parts = (("summary", _models), ("random", _random), ("order", _order), ("times", _all_times))
    return "\n".join("\n".join(lines(document)) + "\n" for part, lines in parts if part in document)


def _models(document: dict[str, Any]) -> list[str]:
    total, trained = document["summary"], document["summary"]["trained"]
    versions = versions_of(document)
    worst = total["worst_prediction_error"] or 0.0
    above = f"{total['refused_above_smallest']} of them above the smallest that trained"
    refused = f"{total['infeasible']} refused, no plan found, {above}"
    limited = f"{trained} of {trained + total['did_not_train']} trained to the end; {refused}"
    return [
        f"{total['models']} models at {total['budgets']} budgets ({versions}, two cores):",
        "",
        "| | target | reached |",
        "|---|---|---|",
        f"| on an allocator of that size | trains to the end | {limited} |",
        f"| plain TensorFlow on the same allocator | dies | at {total['plain_died']} of these {trained} |",
        f"| variables and outputs after three steps | the same bits | {total['same_bits']} of {trained} |",
        f"| measured peak | never above the budget | {total['within_budget']} of {trained} |",
        f"| predicted peak | within 2 % | {total['predicted_within_two_percent']} of {trained}; worst {worst:+.2%} |",
        "",
        "| model | | plain needs | smallest budget | of that | time at 75 % | at 60 % | missed |",
        "|---|---|---|---|---|---|---|---|",
        *(_line(model) for model in document["models"]),
    ]


def _random(document: dict[str, Any]) -> list[str]:
    cases = document["random"]
    held = sum(not case["broken"] for case in cases)
    return [f"Random models and budgets: the same bits, and within the budget, in {held} of {len(cases)} cases."]


def _order(document: dict[str, Any]) -> list[str]:
    """What order alone costs, and where that is more than it may."""
    rows = document["order"]
    took = statistics.median(row["order_time"] - 1 for row in rows if "order_time" in row)
    reached = sum(order_reached(row) for row in rows)
    missed = "; ".join(order_line(row) for row in rows if not order_reached(row)) or "none"
    within = f"+3 % at most in {reached} of {len(rows)} models; median {took:+.1%}"
    return [f"A fixed order alone costs a step {within}. Not reached: {missed}."]


def _all_times(document: dict[str, Any]) -> list[str]:
    return [
        "Time of a step against plain TensorFlow's in the same run, by what is left of the step's bytes:",
        "",
        "| model | way | bytes | time | predicted | target |",
        "|---|---|---|---|---|---|",
        *(line for row in document["times"] for line in _times(row)),
        "",
        f"Not reached: {'; '.join(times_missed(document['times'])) or 'none'}.",
    ]


def _line(model: dict[str, Any]) -> str:
    about = next(words for name, _, words in MODELS if name == model["name"])
    if not model["rows"]:
        return f"| {model['name']} | {about} | | | | | | {model['error'][:60]} |"
    smallest = model["rows"][-1]
    missed = ", ".join(dict.fromkeys(word.split(":")[0] for row in model["rows"] for word in row["broken"]))
    paid = []
    for share in (0.75, 0.6):
        row = next(row for row in model["rows"] if row["share"] == share)
        paid.append(f"{row['predicted_slowdown']:+.1%}" if "predicted_slowdown" in row else "-")
    sizes = f"{format_size(model['plain_bytes'])} | {smallest['mib']} MiB | {smallest['of_plain']:.0%}"
    return f"| {model['name']} | {about} | {sizes} | {paid[0]} | {paid[1]} | {missed} |"


def _times(row: dict[str, Any]) -> list[str]:
    lines = []
    for label, way in row["ways"].items():
        if "error" in way:
            lines.append(f"| {row['name']} | {label} | {way['error'][:90]} | | | |")
            continue
        target = f"{TARGETS[label]:+.0%} at most" if label in TARGETS else ""
        predicted = f"{way['predicted']:+.1%}" if "predicted" in way else ""
        share = f"{way['bytes'] / row['plain_step_bytes']:.0%}"
        lines.append(f"| {row['name']} | {label} | {share} | {way['time'] - 1:+.1%} | {predicted} | {target} |")
    return lines


def main() -> None:
    put("bench-fit", quoted(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
