"""The time paid for bytes, against plain TensorFlow in the same run: a table, and what was not reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.children import run_child

TIMED = (("resnet50", 8), ("unet", 8), ("gpt", 16))
TARGETS = {"order alone": 0.03, "a half": 0.12, "a third": 0.30}
"""Of a step's time, at most: what the plan may cost at that share of a plain step's bytes."""


def timed(name: str, batch: int, seconds: float = 20.0) -> dict[str, Any]:
    answer = run_child("benchmarks.fit_times_child", name, str(batch), str(seconds), seconds=1800)
    return {"name": name, "batch": batch, "ways": {}, **answer}


def times_missed(times: Sequence[dict[str, Any]]) -> list[str]:
    """What the benchmark has to say plainly."""
    missed = [f"{row['name']}: {row['error']}" for row in times if "error" in row]
    for row in times:
        for label, most in TARGETS.items():
            way = row["ways"].get(label, {"error": "not measured"})
            if "error" in way:
                missed.append(f"{row['name']}, {label}: {way['error']}")
            elif way["time"] - 1 > most:
                missed.append(f"{row['name']}, {label}: {way['time'] - 1:+.1%} time, target {most:+.0%}")
    return missed


def show_times(times: Sequence[dict[str, Any]], console: Console) -> None:
    table = Table(box=None, padding=(0, 1, 0, 0), title="Time of a step against plain TensorFlow", title_justify="left")
    for name in ("model", "way", "step's bytes", "time", "predicted", "target"):
        table.add_column(name, justify="left" if name in ("model", "way") else "right", no_wrap=name != "way")
    for row in times:
        if "error" in row:
            table.add_row(row["name"], f"[red]{row['error']}[/]")
        for number, (label, way) in enumerate(row["ways"].items()):
            name, target = row["name"] if number == 0 else "", TARGETS.get(label)
            if "error" in way:
                table.add_row(name, f"{label}: [red]{way['error'][:60]}[/]")
                continue
            missed = target is not None and way["time"] - 1 > target
            table.add_row(
                name,
                label,
                f"{way['bytes'] / row['plain_step_bytes']:.0%}",
                f"[{'red' if missed else 'green'}]{way['time'] - 1:+.1%}[/]" if target else f"{way['time'] - 1:+.1%}",
                f"{way['predicted']:+.1%}" if "predicted" in way else "",
                f"{target:+.0%}" if target else "",
            )
    console.print(table)
