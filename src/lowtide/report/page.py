"""A page as data: a title, figures, and blocks in the order they are read. `html.py` makes a file of it.

Builders (`prediction_page`, `plan_page`, `recording_page`) choose the blocks; `assets/page.js` draws each kind.
Sizes are bytes throughout; the page itself turns them into MiB. Everything here is text or numbers, never HTML.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """One number at the top of the page."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place on the horizontal axis: the peak, or a stretch up to `until`; `faint` for the beginnings of steps."""

    at: float
    text: str
    until: float | None = None
    faint: bool = False


@dataclass(frozen=True, slots=True)
class Series:
    """Values over a chart's `x`; None where nothing is known. `role` picks the colour, `axis` is "bytes" or "count"."""

    name: str
    values: Sequence[float | None]
    role: str = ""
    axis: str = "bytes"
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Chart:
    """Series over one axis, stacked or as lines, with zoom. `said[i]` is shown with point i: an index into `words`."""

    title: str
    note: str
    x_label: str
    x: Sequence[float]
    series: Sequence[Series]
    stacked: bool = False
    steps: bool = False
    """Values hold until the next one, as allocations do."""
    marks: Sequence[Mark] = ()
    words: Sequence[str] = ()
    said: Sequence[int] = ()
    kind: str = "chart"


@dataclass(frozen=True, slots=True)
class Leaf:
    """A box of the treemap."""

    name: str
    size: int
    category: str
    said: str


@dataclass(frozen=True, slots=True)
class Group:
    """A box with boxes in it: a layer and its ops."""

    name: str
    leaves: Sequence[Leaf]


@dataclass(frozen=True, slots=True)
class Tree:
    title: str
    note: str
    groups: Sequence[Group]
    kind: str = "tree"


@dataclass(frozen=True, slots=True)
class Bar:
    """A row of bars: one size for each of the block's `names`; `share` is of the whole, said in the row."""

    name: str
    sizes: Sequence[int | None]
    note: str = ""
    role: str = ""


@dataclass(frozen=True, slots=True)
class Bars:
    """Sizes side by side: categories at the peak, or prediction beside measurement."""

    title: str
    note: str
    names: Sequence[str]
    rows: Sequence[Bar]
    kind: str = "bars"


@dataclass(frozen=True, slots=True)
class Column:
    """`holds` is "text", "bytes" or "number"; "tag" is kept on one line, "label" has room for a layer, "name" is
    monospace, "wide" a long name, "code" one line of it that may be cut."""

    name: str
    holds: str = "text"


Row = Sequence[str | float | None]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows that sort and filter. `pick` is the column whose values can be chosen from."""

    title: str
    note: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    pick: int | None = None
    kind: str = "table"


@dataclass(frozen=True, slots=True)
class Facts:
    """Words and what they stand for."""

    title: str
    rows: Sequence[tuple[str, str]]
    note: str = ""
    kind: str = "facts"


@dataclass(frozen=True, slots=True)
class Advice:
    """A finding: what, how bad (`level`: "problem" or "advice"), where, why, and what to do."""

    level: str
    title: str
    where: str
    why: str
    fix: str
    mark: str = ""
    """Its stable id."""


@dataclass(frozen=True, slots=True)
class Findings:
    title: str
    note: str
    items: Sequence[Advice]
    kind: str = "findings"


@dataclass(frozen=True, slots=True)
class Curve:
    """Bytes against time: each point is (bytes, slowdown as a fraction), the fewest bytes first."""

    title: str
    note: str
    points: Sequence[tuple[int, float]]
    marks: Sequence[tuple[int, str]] = ()
    kind: str = "curve"


Block = Chart | Tree | Bars | Table | Facts | Findings | Curve


@dataclass(frozen=True, slots=True)
class Page:
    """`what` is the small line above the title, `lead` the sentence below it."""

    what: str
    title: str
    lead: str
    figures: Sequence[Figure]
    blocks: Sequence[Block]
    foot: str = ""


def page_data(part: Any) -> Any:
    """The page as what JSON holds."""
    if is_dataclass(part):
        return {field.name: page_data(getattr(part, field.name)) for field in fields(part)}
    if isinstance(part, Mapping):
        return {key: page_data(value) for key, value in part.items()}
    if isinstance(part, list | tuple | range):
        return [page_data(value) for value in part]
    return part
