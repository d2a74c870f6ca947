"""Findings in the terminal: what, how much, where, who holds it, what to do. Computes nothing.

Takes findings as `--json` lists them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lowtide.units import format_size

NONE = "none: nothing that need not be there, nothing that grows"
MOST = 5
"""Shown in the terminal; `--json` has all."""
STYLES = {"problem": "bold red", "advice": "bold yellow"}


def findings_view(findings: Sequence[Mapping[str, Any]], unjudged: str = "", file: str = "FILE") -> RenderableType:
    """The findings section of `lowtide run` and `lowtide report`.

    `unjudged` says what it does not mean when there are none; `file` is the recording.
    """
    return Group(*_parts(findings, unjudged, file))


def render_findings(findings: Sequence[Mapping[str, Any]], width: int = 100, unjudged: str = "") -> str:
    """The same as text."""
    console = Console(width=width, force_terminal=False)
    with console.capture() as captured:
        console.print(findings_view(findings, unjudged))
    return captured.get()


def verified_view(checked: Sequence[Mapping[str, Any]]) -> RenderableType:
    """What `--verify` measured: peaks without each change and with it."""
    if not checked:
        return Text("Verified ", style="bold").append("nothing: no finding has a change that Lowtide can make", "")
    table = Table(box=None, padding=(0, 1), title="Verified", title_justify="left", title_style="bold")
    for name, justify in (("change", "left"), ("device before", "right"), ("after", "right"), ("host before", "right"),
                          ("after", "right"), ("ended", "left")):  # fmt: skip
        table.add_column(name, justify=justify, no_wrap=name != "change")  # type: ignore[arg-type]
    for row in checked:
        sizes = (row[key] for key in ("device_before", "device_after", "host_before", "host_after"))
        table.add_row(f"{row['change']} [{row['finding']}]".replace("[", "\\["), *map(_size, sizes), row["ended"])
    return table


def _size(size: int | None) -> str:
    return "" if size is None else format_size(size)


def _parts(findings: Sequence[Mapping[str, Any]], unjudged: str, file: str) -> Iterator[RenderableType]:
    if not findings:
        held = f"none, but {unjudged}" if unjudged else NONE
        yield Text("Findings ", style="bold").append(held, "")
        return
    yield Text("Findings", style="bold")
    for number, finding in enumerate(findings[:MOST], 1):
        yield _headline(number, finding)
        yield Padding(Group(*_lines(finding)), (0, 0, 0, 4))
    if len(findings) > MOST:
        yield Text(f"  and {len(findings) - MOST} more: lowtide report {shlex.quote(file)} --json", style="dim")


def _headline(number: int, finding: Mapping[str, Any]) -> Text:
    text = Text(f"{number:>2}. ")
    text.append(str(finding["severity"]), style=STYLES.get(finding["severity"], ""))
    text.append(f" {format_size(finding['bytes'])}", style="bold")
    if finding["bytes_per_step"]:
        text.append(f", {format_size(finding['bytes_per_step'])} a step")
    return text.append(f"  {finding['title']}").append(f"  [{finding['id']}]", style="dim")


def _lines(finding: Mapping[str, Any]) -> Iterator[Text]:
    if finding["file"]:
        where = Text(f"{Path(finding['file']).name}:{finding['line']}", style="cyan")
        yield where.append(f"  {finding['code'] or ''}", style="")
    if finding["holder"]:
        word = "filled by" if finding["id"] == "out-of-memory" else "held by"
        yield Text(f"{word} {finding['holder']}", style="dim")
    saving = f" (saves {format_size(finding['saving_bytes'])})" if finding["saving_bytes"] else ""
    yield Text(f"fix: {finding['fix']}{saving}")
