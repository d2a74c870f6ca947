"""A plan's numbers as a short table. Computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lowtide.units import format_size, is_share


def plan_view(facts: Mapping[str, Any], title: str, asked: str = "") -> RenderableType:
    """Peak without and with, time paid, and the moves: `facts` are those of `lowtide.plan.plan_facts`.

    `asked` is the budget as it was given: a part of what `predict` says of the plain run, its data included.
    """
    headline = Text(f"{title} with batch {facts['batch']} in ")
    headline.append(format_size(facts["budget_bytes"]), style="bold")
    if is_share(asked):
        headline.append(f" ({asked.strip()} of what plain TensorFlow needs, data on the device included)")
    headline.append(", with the same results")
    table = Table(box=None, padding=(0, 1))
    table.add_column("a training step", no_wrap=True)
    for name in ("peak", "ops", "time paid"):
        table.add_column(name, justify="right", no_wrap=True)
    plain = f"{format_size(facts['plain_low_bytes'])} to {format_size(facts['plain_high_bytes'])}"
    table.add_row("plain TensorFlow", plain, "", "", style="dim")
    for move in facts["moves"]:
        paid = f"{move['seconds'] * 1e3:.1f} ms" if move["seconds"] else "-"
        name = move["name"] if move["exact"] else f"{move['name']} (changes numbers)"
        table.add_row(f"+ {name}", format_size(move["peak_bytes"]), f"{move['count']:,}", paid)
    paid = f"predicted time paid: {max(0.0, facts['slowdown']):+.1%} of a step"
    known = facts["gap"] < 1
    least = f"within {facts['gap']:.1%} of the least possible" if known else "the least possible is not known"
    lines: list[RenderableType] = [headline, table, Text(f"{paid}, {least}")]
    if unknown := len(facts["unknown"]):
        ops = "1 op" if unknown == 1 else f"{unknown:,} ops"
        lines.append(Text(f"not computed: {ops}; `lowtide predict` says which", style="yellow"))
    return Group(*lines)


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
    return Group(table, last, Text("`lowtide fit`, whose allocator has the budget and cannot grow, may need some more"))
