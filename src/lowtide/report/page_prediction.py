"""A Forecast as a page, with a Recording's measurement beside it when there is one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lowtide.record import Detail, Recording
from lowtide.record.views import by_category, by_layer, device_peak, fullest_detail
from lowtide.report.contents import Item, difference, peak_table, peak_tree, short, versions_line
from lowtide.report.page import Bar, Bars, Block, Chart, Column, Facts, Figure, Mark, Page, Row, Series, Table
from lowtide.report.page_recording import detail_chart
from lowtide.report.words import MEANING
from lowtide.simulate import CATEGORIES, LARGEST_BATCH, Forecast, Maker, Timeline
from lowtide.simulate.levels import levels
from lowtide.units import format_size

ROUNDING = "constants, rounding up"


def prediction_page(forecast: Forecast, title: str, recording: Recording | None = None) -> Page:
    """What `lowtide predict --html` writes."""
    timeline = forecast.timeline
    lead = (
        f"{format_size(forecast.peak)} at the peak of a training step with batch {timeline.batch}, reached by "
        f"{spoken(timeline.makers[timeline.peak_maker])}. Nothing was trained."
    )
    blocks = [*_measured(forecast, recording), *_blocks(forecast)]
    foot = f"lowtide predict · {versions_line(sorted(forecast.versions.items()))}"
    return Page("Lowtide prediction", title, lead, _figures(forecast, recording), blocks, foot)


def spoken(maker: Maker) -> str:
    """An op in words: its type, its layer or name, its line."""
    place = f"layer {maker.layer}" if maker.layer else maker.name
    return " · ".join(part for part in (maker.kind, place, short(maker.source)) if part)


def _figures(forecast: Forecast, recording: Recording | None) -> list[Figure]:
    timeline = forecast.timeline
    figures = [
        Figure("peak", format_size(forecast.peak), "exact, in Lowtide's fixed order")
        if forecast.compiler != "xla"
        else Figure("peak", format_size(forecast.peak), "XLA's own buffer assignment"),
    ]
    if forecast.compiler != "xla":
        span = f"{format_size(forecast.plain_low)} to {format_size(forecast.plain_high)}"
        figures.append(Figure("plain run", span, "TensorFlow picks its order as it runs"))
    peak = device_peak(recording) if recording else None
    if peak is not None:
        figures.append(Figure("measured", format_size(peak.bytes), "the allocator's own count"))
    figures.append(Figure("before the step", format_size(timeline.chunk_resident), "weights, optimizer, batch"))
    if forecast.per_sample is not None:
        note = f"and {format_size(forecast.fixed)} whatever the batch"
        figures.append(Figure("each sample", format_size(forecast.per_sample), note))
    if forecast.largest_batch is not None and forecast.budget is not None:
        many = f"> {LARGEST_BATCH:,}" if forecast.largest_batch >= LARGEST_BATCH else f"{forecast.largest_batch:,}"
        figures.append(Figure("largest batch", many, f"in {format_size(forecast.budget)}"))
    return figures


def _blocks(forecast: Forecast) -> Iterator[Block]:
    timeline = forecast.timeline
    yield timeline_chart(timeline, "One training step", "")
    yield _categories(forecast)
    found = items(forecast)
    yield peak_tree(found, "Boxes are as large as their bytes: layers, and in them the ops. Click a box to go into it.")
    yield peak_table(found)
    if forecast.notes:
        rows = [(note.treatment, note.bytes, note.what, note.why) for note in forecast.notes]
        columns = [Column("treatment"), Column("bytes", "bytes"), Column("what", "name"), Column("why")]
        yield Table("Not computed", "What was done about it, and how many bytes were counted.", columns, rows)


def timeline_chart(timeline: Timeline, title: str, before: str) -> Chart:
    """Requested bytes over a step, stacked by category, the peak marked."""
    found = levels(timeline)
    words = ["before the step"]
    index: dict[int, int] = {}
    said = []
    for maker in found.makers:
        if maker is not None and maker not in index:
            index[maker] = len(words)
            words.append(spoken(timeline.makers[maker]))
        said.append(0 if maker is None else index[maker])
    note = (
        f"{before}Bytes asked for, by what they are for. At the peak the allocator hands out "
        f"{format_size(timeline.chunk_peak)} in chunks for {format_size(timeline.peak)} asked for."
    )
    series = [Series(name, values, name) for name, values in found.by_category.items() if any(values)]
    peak = Mark(timeline.peak_at, f"peak: {spoken(timeline.makers[timeline.peak_maker])}")
    return Chart(
        title, note, "allocations and frees since the step began", found.moments, series, stacked=True, steps=True,
        marks=[peak], words=words, said=said,
    )  # fmt: skip


def _categories(forecast: Forecast) -> Bars:
    sizes = forecast.by_category
    ranked = sorted((name for name in CATEGORIES if sizes[name]), key=lambda name: -sizes[name])
    rows = [Bar(name, [sizes[name]], MEANING[name] if name != "other" else ROUNDING, name) for name in ranked]
    return Bars("Categories at the peak", f"They sum to {format_size(forecast.peak)}.", ["predicted"], rows)


def items(forecast: Forecast) -> list[Item]:
    """The buffers alive at the peak, and what the allocator adds to them: together the peak, to the byte."""
    makers = forecast.timeline.makers
    found = [Item(b.bytes, b.category, *makers[b.maker]) for b in forecast.at_peak()]
    rounding = forecast.peak - sum(item.size for item in found)
    if rounding > 0:
        found.append(Item(rounding, "other", "rounding up and chunks that are not split", "allocator", "", None))
    return found


def _measured(forecast: Forecast, recording: Recording | None) -> Iterator[Block]:
    if recording is None:
        return
    peak = device_peak(recording)
    if peak is None:
        yield Facts("Prediction beside measurement", [("nothing to compare", "the recording has no device bytes")])
        return
    low, high = forecast.plain_low, forecast.plain_high
    inside = "inside" if low <= peak.bytes <= high else "below" if peak.bytes < low else "above"
    rows = [
        ("measured", f"{format_size(peak.bytes)}, the highest of the run"),
        ("predicted, plain run", f"{format_size(low)} to {format_size(high)}: the measurement is {inside} the range"),
        ("predicted, fixed order", f"{format_size(forecast.peak)}: {difference(peak.bytes, forecast.peak)} from it"),
    ]
    yield Facts("Prediction beside measurement", rows, f"Measured in {recording.run.script}.")
    detail = peak.detail or fullest_detail(recording)
    if detail is not None:
        yield from _side_by_side(forecast, detail)


def _side_by_side(forecast: Forecast, detail: Detail) -> Iterator[Block]:
    predicted, measured = forecast.by_category, by_category(detail)
    measured["other"] += measured.pop("constants")
    rows = [Bar(name, [predicted[name], measured[name]], MEANING[name], name) for name in CATEGORIES]
    note = (
        f"At the peaks; the measured step reached {format_size(detail.peak_bytes)}. Measured bytes are chunks: what "
        "the allocator rounds up is in every category there, and in other of the prediction."
    )
    yield Bars("Categories, predicted and measured", note, ["predicted", "measured"], _nonzero(rows))
    there = by_layer(detail)
    here = forecast.by_layer
    layers = sorted({*here, *there} - {""}, key=lambda name: -max(here.get(name, 0), there.get(name, 0)))
    columns = [Column("layer"), Column("predicted", "bytes"), Column("measured", "bytes"), Column("apart", "bytes")]
    table: list[Row] = [[n, here.get(n, 0), there.get(n, 0), here.get(n, 0) - there.get(n, 0)] for n in layers]
    yield Table("Layers, predicted and measured", "Bytes alive at the peak.", columns, table)
    yield detail_chart(detail, "The measured step")


def _nonzero(rows: Sequence[Bar]) -> list[Bar]:
    return [row for row in rows if any(row.sizes)]
