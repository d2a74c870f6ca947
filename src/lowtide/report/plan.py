"""A plan's numbers as a short table. Computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lowtide.units import format_size


def plan_view(facts: Mapping[str, Any], title: str) -> RenderableType:
    """Peak without and with, time paid, and the moves: `facts` are those of `lowtide.plan.plan_facts`."""
    headline = Text()
    headline.append(format_size(facts["peak_bytes"]), style="bold")
    headline.append(f" instead of {format_size(facts['without_bytes'])} for a step of {title}")
    headline.append(f" with batch {facts['batch']}, in a budget of {format_size(facts['budget_bytes'])}")
    table = Table(box=None, padding=(0, 1))
    for name, justify in (("move", "left"), ("ops", "right"), ("saves", "right"), ("time paid", "right"), ("", "left")):
        table.add_column(name, justify=justify, no_wrap=True)  # type: ignore[arg-type]  # rich's literals
    for move in facts["moves"]:
        paid = f"{move['seconds'] * 1e3:.1f} ms" if move["seconds"] else "-"
        exact = "same results" if move["exact"] else "changes numbers"
        table.add_row(move["name"], f"{move['count']:,}", format_size(move["saved_bytes"]), paid, Text(exact, "dim"))
    paid = f"predicted time paid: {facts['slowdown']:+.1%} of a step"
    time = Text(f"{paid}, within {facts['gap']:.1%} of the least possible")
    return Group(headline, table, time)


def curve_view(points: list[Mapping[str, Any]], smallest: Mapping[str, Any]) -> RenderableType:
    """Bytes against time over the budgets, and what sets the smallest."""
    table = Table(box=None, padding=(0, 1), title="Bytes against time", title_justify="left", title_style="bold")
    table.add_column("budget", justify="right", no_wrap=True)
    table.add_column("of now", justify="right", no_wrap=True)
    table.add_column("time", justify="right", no_wrap=True)
    table.add_column("")
    for point in points:
        bar = Text("█" * max(1, round(30 * point["share"])), style="cyan")
        table.add_row(format_size(point["budget_bytes"]), f"{point['share']:.0%}", f"{point['slowdown']:+.1%}", bar)
    last = Text(f"smallest found: {format_size(smallest['budget_bytes'])}, set by {smallest['op']}")
    return Group(table, last)
