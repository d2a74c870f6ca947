"""`%%lowtide`: measure the memory of a notebook cell and draw it below. `%load_ext lowtide.jupyter` loads it.

    %%lowtide
    model.train_on_batch(x, y)

`%%lowtide FILE` keeps the recording for `lowtide report`. IPython is what calls this; nothing else needs it.
"""

from __future__ import annotations

import shlex
from html import escape
from typing import Any

from lowtide.record import CATEGORIES, Detail, Recording
from lowtide.record.views import by_category, by_line, category_curve, device_peak, fullest_detail, host_peak
from lowtide.report.contents import line_name
from lowtide.runs import Measurement, measure
from lowtide.units import format_size

WIDTH, HEIGHT, POINTS = 640, 160, 320
_COLOURS = ("#4e79a7", "#b07aa1", "#e15759", "#59a14f", "#edc948", "#76b7b2", "#9c755f", "#bab0ac")


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext lowtide.jupyter` calls."""

    def lowtide(line: str, cell: str) -> None:
        _display(run_cell(shell, line, cell))  # not returned: the cell's own result is the one of `Out`

    shell.register_magic_function(lowtide, "cell", "lowtide")


def run_cell(shell: Any, line: str, cell: str) -> Shown:
    """Run the cell as the shell would, measured. An error of the cell is shown by the shell, and raised again."""
    measured, result = measure(_file(line)), None
    try:
        with measured:
            result = shell.run_cell(cell)
            result.raise_error()
    except BaseException as error:
        if result is None:
            raise  # of ours: nobody has shown it
        _display(Shown(measured))
        raise _seen(error) from None
    return Shown(measured)


def _file(line: str) -> str | None:
    """The file that the magic was given, if any."""
    words = shlex.split(line)
    if len(words) > 1 or (words and words[0].startswith("-")):
        from IPython.core.error import UsageError

        raise UsageError(f"%%lowtide {line.strip()}: expected nothing or one file, such as %%lowtide cell.db")
    return words[0] if words else None


def _display(shown: Shown) -> None:
    from IPython import display

    show: Any = display.display  # has no types
    show(shown)


class CellFailed(Exception):
    """Stands for an error that a shell shows in its own way, whatever the error says."""


def _seen(error: BaseException) -> BaseException:
    """The error of a cell, such that the shell, which has shown its traceback, does not show it again."""
    own_way = isinstance(error, SyntaxError) or type(error).__name__ == "UsageError"
    seen = CellFailed(f"{type(error).__name__}: {error}") if own_way else error
    seen._render_traceback_ = list  # type: ignore[attr-defined]  # IPython asks for it: no lines
    return seen


class Shown:
    """A measurement that a notebook draws, and a terminal prints."""

    def __init__(self, measured: Measurement) -> None:
        self.measured = measured

    def _repr_html_(self) -> str:
        recording = self.measured.recording
        detail = fullest_detail(recording)
        chart = _chart(detail) + _legend(detail) + _lines(detail) if detail and detail.peak_bytes else ""
        return f'<div style="font-family:sans-serif;font-size:13px">{_headline(recording)}{chart}</div>'

    def __repr__(self) -> str:
        return self.measured.table()


def _headline(recording: Recording) -> str:
    device, host = device_peak(recording), host_peak(recording)
    parts = [f"device peak <b>{format_size(device.bytes)}</b>"] if device else []
    parts += [f"host peak <b>{format_size(host.rss_bytes or 0)}</b>"] if host else []
    notes = "".join(f'<div style="color:#a60">{escape(note)}</div>' for note in recording.notes)
    return f"<div>{', '.join(parts)} in {recording.outcome.seconds:.1f} s</div>{notes}"


def _chart(detail: Detail) -> str:
    """Bytes in use by category over the cell's allocations, stacked."""
    curve = category_curve(detail)
    every = max(1, len(curve) // POINTS)
    points = [curve[min(at, len(curve) - 1)] for at in range(0, len(curve), every)]
    if detail.peak_at < len(curve):
        points.insert(min(len(points), detail.peak_at // every + 1), curve[detail.peak_at])
    top = max((sum(point.values()) for point in points), default=1) or 1
    below = [0.0] * len(points)
    shapes = []
    for colour, category in zip(_COLOURS, CATEGORIES, strict=True):
        above = [low + point[category] for low, point in zip(below, points, strict=True)]
        shapes.append(f'<polygon fill="{colour}" points="{_outline(below, above, top)}"/>')
        below = above
    return f'<svg width="{WIDTH}" height="{HEIGHT}" role="img">{"".join(shapes)}</svg>'


def _outline(below: list[float], above: list[float], top: float) -> str:
    step = WIDTH / max(1, len(above) - 1)
    there = [(at * step, HEIGHT * (1 - value / top)) for at, value in enumerate(above)]
    back = [(at * step, HEIGHT * (1 - value / top)) for at, value in enumerate(below)][::-1]
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in [*there, *back])


def _legend(detail: Detail) -> str:
    sizes = by_category(detail)
    items = [
        f'<span style="color:{colour}">&#9632;</span> {category} {format_size(sizes[category])}'
        for colour, category in zip(_COLOURS, CATEGORIES, strict=True)
        if sizes[category]
    ]
    return f"<div>{' &nbsp; '.join(items)}</div>"


def _lines(detail: Detail) -> str:
    rows = [
        f"<tr><td>{format_size(size)}</td><td>{escape(line_name(source))}</td></tr>"
        for source, size in list(by_line(detail).items())[:6]
    ]
    return f"<table>{''.join(rows)}</table>"
