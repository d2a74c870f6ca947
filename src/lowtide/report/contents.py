"""What the peak is made of, as a treemap and as a table: one form for what was predicted and what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from lowtide.program import Source
from lowtide.report.page import Column, Group, Leaf, Table, Tree
from lowtide.units import format_size

MOST_LEAVES = 3000
MOST_ROWS = 4000


class Item(NamedTuple):
    """A buffer alive at the peak, as far as a reader wants to know it."""

    size: int
    category: str
    op: str
    kind: str
    layer: str
    source: Source | None
    shape: str = ""
    code: str = ""


def short(source: Source | None) -> str:
    """File and line as people say them."""
    return f"{Path(source.file).name}:{source.line}" if source else ""


def line_name(source: Source | None) -> str:
    """The same, where bytes may have no line."""
    return short(source) or "no line of yours"


def peak_tree(items: Iterable[Item], note: str) -> Tree:
    """By layer, then by op. What belongs to no layer stands under its category's name."""
    ranked = sorted(items, key=lambda item: -item.size)
    groups: dict[str, list[Leaf]] = {}
    for item in ranked[:MOST_LEAVES]:
        name = (_last(item.op) if item.layer else item.op) or item.kind
        leaf = Leaf(name, item.size, item.category, _said(item))
        groups.setdefault(item.layer or item.category, []).append(leaf)
    if rest := ranked[MOST_LEAVES:]:
        small = Leaf("smaller ones", sum(item.size for item in rest), "other", f"{len(rest):,} buffers")
        groups.setdefault("smaller ones", []).append(small)
    by_size = sorted(groups.items(), key=lambda group: -sum(leaf.size for leaf in group[1]))
    return Tree("What the peak is made of", note, [Group(name, leaves) for name, leaves in by_size])


def peak_table(items: Iterable[Item], note: str = "") -> Table:
    """Every buffer alive at the peak, the largest first."""
    ranked = sorted(items, key=lambda item: -item.size)
    columns = [
        Column("bytes", "bytes"), Column("category", "tag"), Column("layer", "label"), Column("op", "wide"),
        Column("type"), Column("line", "name"),
    ]  # fmt: skip
    with_shape, with_code = any(item.shape for item in ranked), any(item.code for item in ranked)
    columns += [Column("shape", "name")] * with_shape + [Column("code", "code")] * with_code
    rows = []
    for item in ranked[:MOST_ROWS]:
        row: list[str | float | None] = [
            item.size, item.category, item.layer, item.op, item.kind, short(item.source)
        ]  # fmt: skip
        rows.append(row + [item.shape] * with_shape + [item.code] * with_code)
    cut = f" The {MOST_ROWS:,} largest of {len(ranked):,}." if len(ranked) > MOST_ROWS else ""
    title = "Every tensor alive at the peak"
    return Table(title, (note + cut).strip(), columns, rows, pick=1)


def _said(item: Item) -> str:
    where = [part for part in (item.kind, item.layer and f"layer {item.layer}", short(item.source)) if part]
    return "\n".join([item.op, " · ".join(where), *filter(None, (item.shape, item.code))])


def _last(op: str) -> str:
    """The name that tells ops of one layer apart."""
    return op.rstrip("/").rpartition("/")[2]


def counted(number: int, word: str) -> str:
    """"1 step", "3 steps"."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def percent(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def versions_line(versions: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions)


def difference(measured: int, predicted: int) -> str:
    """How far the prediction is from what was measured."""
    change = predicted - measured
    return f"{'+' if change > 0 else ''}{format_size(change)} ({change / measured:+.1%})" if measured else "-"
