"""What changed between two recordings, for people (terminal, 80 columns) and for programs (JSON). Computes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lowtide.record.compare import Change, Comparison, LineChange
from lowtide.report.contents import line_name
from lowtide.units import format_size

TOP = 8


def diff_json(comparison: Comparison) -> dict[str, Any]:
    """The `--json` object. Its keys are a contract: added to, never renamed."""
    return {
        "peaks": [_change(change) for change in comparison.peaks],
        "categories": [_change(change) for change in comparison.categories],
        "layers": [_change(change) for change in comparison.layers],
        "lines": [_line(change) for change in comparison.lines],
        "host": [_change(change) for change in comparison.host],
        "steps": list(comparison.steps),
        "seconds_a_step": list(comparison.seconds_a_step),
    }


def _change(change: Change) -> dict[str, Any]:
    known = change.before is not None and change.after is not None
    return {
        "name": change.name,
        "before_bytes": change.before,
        "after_bytes": change.after,
        "grew_bytes": change.grew if known else None,
    }


def _line(change: LineChange) -> dict[str, Any]:
    return {
        "file": change.source.file if change.source else None,
        "line": change.source.line if change.source else None,
        "code": change.code,
        "before_bytes": change.before,
        "after_bytes": change.after,
        "grew_bytes": change.grew,
    }


def diff_view(comparison: Comparison, names: tuple[str, str]) -> RenderableType:
    """Peaks, then what grew by category, layer, line and part of the host's memory."""
    return Group(*_parts(comparison, names))


def _parts(comparison: Comparison, names: tuple[str, str]) -> Iterator[RenderableType]:
    yield Text.assemble("from ", (names[0], "bold"), " to ", (names[1], "bold"))
    yield _table("", comparison.peaks, everything=True)
    yield _pace(comparison)
    for title, changes in (
        ("By category, at the peak", comparison.categories),
        ("By layer, at the peak", comparison.layers),
    ):
        if changes:
            yield _table(title, [c._replace(name=c.name or "no layer") for c in changes])
    if comparison.lines:
        yield _lines(comparison.lines)
    if comparison.host:
        yield _table("Host memory, at its peak", comparison.host)
    if not (comparison.categories or comparison.layers or comparison.lines):
        yield Text("\nAt the peaks the device holds the same in both, by category, layer and line.", style="dim")


def _pace(comparison: Comparison) -> Text:
    before, after = comparison.seconds_a_step
    text = f"steps: {comparison.steps[0]:,} and {comparison.steps[1]:,}"
    if before is not None and after is not None:
        text += f"; {before * 1e3:.1f} ms and {after * 1e3:.1f} ms each"
    return Text(text, style="dim")


def _table(title: str, changes: Sequence[Change], everything: bool = False) -> Table:
    table = _titled(title, "")
    for change in changes if everything else changes[:TOP]:
        table.add_row(_grew(change), _size(change.before), _size(change.after), Text(change.name))
    if not everything and len(changes) > TOP:
        table.add_row("", "", "", Text(f"and {len(changes) - TOP} more: --json lists them", style="dim"))
    return table


def _lines(changes: Sequence[LineChange]) -> Table:
    table = _titled("By line, at the peak", "line")
    for change in changes[:TOP]:
        where = Text(line_name(change.source))
        if change.code:
            where.append(f"  {change.code}", style="dim")
        grew = _grew(Change("", change.before, change.after))
        table.add_row(grew, _size(change.before), _size(change.after), where)
    if len(changes) > TOP:
        table.add_row("", "", "", Text(f"and {len(changes) - TOP} more: --json lists them", style="dim"))
    return table


def _titled(title: str, last: str) -> Table:
    table = Table(box=None, padding=(0, 1), title=f"\n{title}" if title else None, title_justify="left")
    table.title_style = "bold"
    for name in ("change", "before", "after"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(last, overflow="fold")
    return table


def _size(size: int | None) -> str:
    return "-" if size is None else format_size(size)


def _grew(change: Change) -> Text:
    if change.before is None or change.after is None:
        return Text("-")
    sign = "+" if change.grew > 0 else ""
    return Text(f"{sign}{format_size(change.grew)}", style="red" if change.grew > 0 else "green" if change.grew else "")
