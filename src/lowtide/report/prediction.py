"""A Forecast for people (terminal, 80 columns) and for programs (JSON). Computes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from lowtide.program import Source
from lowtide.simulate import CATEGORIES, LARGEST_BATCH, Forecast, Maker, largest_buffers
from lowtide.units import format_size

TOP = 8
_KINDS_OF_CATEGORY = {
    "parameters": "weights and statistics",
    "optimizer state": "slots and counters",
    "gradients": "of weights not yet updated",
    "activations": "kept for the backward pass",
    "temporaries": "come and go in the step",
    "inputs": "the batch, data on the device",
    "other": "constants, rounding up",
}


def prediction_json(forecast: Forecast) -> dict[str, Any]:
    """The `--json` object. Its keys are a contract: added to, never renamed."""
    timeline = forecast.timeline
    at = timeline.makers[timeline.peak_maker]
    return {
        "peak_bytes": timeline.chunk_peak,
        "resident_bytes": timeline.chunk_resident,
        "step_bytes": timeline.chunk_peak - timeline.chunk_resident,
        "requested_peak_bytes": timeline.peak,
        "plain_low_bytes": forecast.plain_low,
        "plain_high_bytes": forecast.plain_high,
        "batch": timeline.batch,
        "fixed_bytes": forecast.fixed,
        "per_sample_bytes": None if forecast.per_sample is None else round(forecast.per_sample),
        "budget_bytes": forecast.budget,
        "largest_batch": forecast.largest_batch,
        "at": {"op": at.name, "layer": at.layer, **_where(at.source)},
        "categories": forecast.by_category,
        "layers": [{"layer": name, "size_bytes": size} for name, size in forecast.by_layer.items()],
        "tensors": [
            {"size_bytes": buffer.bytes, "category": buffer.category, **_tensor(timeline.makers[buffer.maker])}
            for buffer in largest_buffers(forecast, 50)
        ],
        "unknown": [
            {"what": note.what, "treatment": note.treatment, "size_bytes": note.bytes, "why": note.why}
            for note in forecast.notes
        ],
        "compiler": forecast.compiler or "executor",
        "versions": dict(forecast.versions),
    }


def _where(source: Source | None) -> dict[str, Any]:
    return {"file": source.file if source else None, "line": source.line if source else None}


def _tensor(maker: Maker) -> dict[str, Any]:
    return {"op": maker.name, "kind": maker.kind, "layer": maker.layer, **_where(maker.source)}


def render_prediction(forecast: Forecast, title: str, width: int | None = None) -> str:
    """The same as text, as `print` would show it."""
    console = Console(width=width or 80, record=False, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(prediction_view(forecast, title))
    return captured.get()


def prediction_view(forecast: Forecast, title: str) -> RenderableType:
    """Headline, law, what the peak is made of, where it comes from, what is not known."""
    return Group(*_parts(forecast, title))


def _parts(forecast: Forecast, title: str) -> Iterator[RenderableType]:
    yield _headline(forecast, title)
    yield Text()
    yield _facts(forecast)
    yield Text()
    yield _categories(forecast)
    yield Text()
    yield _layers(forecast)
    yield Text()
    yield _tensors(forecast)
    if forecast.notes:
        yield Text()
        yield _unknowns(forecast)


def _headline(forecast: Forecast, title: str) -> Text:
    timeline = forecast.timeline
    text = Text()
    text.append(format_size(timeline.chunk_peak), style="bold")
    text.append(f" at the peak of a training step of {title} with batch {timeline.batch}")
    return text


def _facts(forecast: Forecast) -> Table:
    timeline = forecast.timeline
    maker = timeline.makers[timeline.peak_maker]
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    place = f"{maker.kind} {maker.name}" + (f", layer {maker.layer}" if maker.layer else "")
    table.add_row("reached at", _plain(place))
    if maker.source:
        table.add_row("", _plain(_short(maker.source)))
    table.add_row("before the step", f"{format_size(timeline.chunk_resident)} resident")
    if forecast.compiler == "xla":
        table.add_row("compiled by XLA", "its own buffer assignment, order and rewrites included")
    else:
        table.add_row("exactly", f"{format_size(timeline.chunk_peak)} in Lowtide's fixed order")
        low, high = format_size(forecast.plain_low), format_size(forecast.plain_high)
        table.add_row("plain run", f"{low} to {high}: TensorFlow picks its order as it runs")
    table.add_row("law", _law(forecast))
    if forecast.budget is not None:
        table.add_row("largest batch", _largest(forecast))
    return table


def _law(forecast: Forecast) -> str:
    if forecast.per_sample is None:
        return "none: the step was traced for this batch only"
    return f"{format_size(forecast.fixed)} + {format_size(forecast.per_sample)} x batch"


def _largest(forecast: Forecast) -> str:
    budget = format_size(forecast.budget or 0)
    if forecast.largest_batch is None:
        return f"unknown for {budget}: the step was traced for one batch only"
    if not forecast.largest_batch:
        return f"none fits in {budget}"
    if forecast.largest_batch >= LARGEST_BATCH:
        return f"more than {LARGEST_BATCH:,} in {budget}"
    return f"{forecast.largest_batch} in {budget}, for the plain run too"


def _titled(title: str, style: str = "bold") -> Table:
    return Table(box=None, padding=(0, 1), title=title, title_justify="left", title_style=style)


def _categories(forecast: Forecast) -> Table:
    table = _titled("What the peak is made of")
    for name, justify in (("category", "left"), ("bytes", "right"), ("share", "right"), ("", "left"), ("", "left")):
        table.add_column(name, justify=justify, no_wrap=name != "")  # type: ignore[arg-type]  # rich's literals
    categories = forecast.by_category
    for name in sorted(CATEGORIES, key=lambda name: -categories[name]):
        share = categories[name] / forecast.peak if forecast.peak else 0.0
        bar = Text("█" * round(share * 20), style="cyan")
        table.add_row(name, format_size(categories[name]), f"{share:.1%}", bar, Text(_KINDS_OF_CATEGORY[name], "dim"))
    return table


def _layers(forecast: Forecast) -> Table:
    table = _titled("Layers with most alive then")
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("layer", overflow="fold")
    named: Mapping[str, int] = {name: size for name, size in forecast.by_layer.items() if name}
    for name, size in list(named.items())[:TOP]:
        table.add_row(format_size(size), _plain(name))
    return table


def _tensors(forecast: Forecast) -> Table:
    table = _titled("Largest tensors alive then")
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("category", no_wrap=True)
    table.add_column("made by", overflow="fold")
    table.add_column("line", overflow="fold", style="dim")
    for buffer in largest_buffers(forecast, TOP):
        maker = forecast.timeline.makers[buffer.maker]
        by = f"{maker.kind} {maker.name if maker.kind == 'variable' else maker.layer or maker.name}"
        table.add_row(format_size(buffer.bytes), buffer.category, _plain(by), _plain(_short(maker.source)))
    return table


def _unknowns(forecast: Forecast) -> Table:
    table = _titled("Not computed", "bold yellow")
    table.add_column("treatment", no_wrap=True)
    table.add_column("bytes", justify="right", no_wrap=True)
    table.add_column("what and why", overflow="fold")
    for note in forecast.notes[:TOP]:
        table.add_row(note.treatment, format_size(note.bytes), _plain(f"{note.what}: {note.why}"))
    if len(forecast.notes) > TOP:
        table.add_row("", "", f"and {len(forecast.notes) - TOP} more: --json lists them")
    return table


def _short(source: Source | None) -> str:
    return f"{Path(source.file).name}:{source.line}" if source else ""


def _plain(text: str) -> Text:
    """Names from the script are data: no markup in them."""
    return Text(text)
