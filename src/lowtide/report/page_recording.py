"""A Recording as a page: the whole run on one time axis, the steps that were recorded in full, the peak, the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lowtide.record import Detail, Recording, Sample
from lowtide.record.extremes import line_text
from lowtide.record.views import (
    Peak,
    by_category,
    by_line,
    by_mode,
    category_curve,
    device_peak,
    fullest_detail,
    growth,
    host_peak,
    main_steps,
    reserve_unused,
    run_samples,
    step_count,
    step_spans,
)
from lowtide.report.contents import (
    Item,
    counted,
    line_name,
    peak_table,
    peak_tree,
    percent,
    short,
    versions_line,
)
from lowtide.report.page import (
    Advice,
    Bar,
    Bars,
    Block,
    Chart,
    Column,
    Figure,
    Findings,
    Mark,
    Page,
    Row,
    Series,
    Table,
)
from lowtide.report.page_host import host_blocks
from lowtide.report.words import MEANING, outcome_words, step_names, step_words
from lowtide.simulate.levels import POINTS, thinned
from lowtide.units import format_size

MOST_DETAILS = 3
MOST_STEP_MARKS = 24
LONG_STEP = 10.0
"""Seconds from which on a step's chart counts in seconds."""


def recording_page(recording: Recording, findings: Sequence[Mapping[str, Any]] = ()) -> Page:
    """What `lowtide report FILE --html OUT` writes."""
    run = recording.run
    title = " ".join((Path(run.script).name, *run.arguments))
    foot = f"lowtide run · {versions_line(sorted(run.versions.items()))}"
    blocks = [block for block in _blocks(recording, findings) if block is not None]
    return Page("Lowtide recording", title, _lead(recording), _figures(recording), blocks, foot)


def _blocks(recording: Recording, findings: Sequence[Mapping[str, Any]]) -> Iterator[Block | None]:
    if findings:
        note = "What costs memory here, the most telling first, and what to do about it."
        yield Findings("Findings", note, [_advice(finding) for finding in findings])
    yield _whole_run(recording)
    peak = device_peak(recording)
    detail = peak.detail if peak and peak.detail else fullest_detail(recording)
    if detail is not None:
        yield from _details(recording, detail)
        yield from _peak(recording, detail)
    yield _counts(recording)
    yield from host_blocks(recording)


def _advice(finding: Mapping[str, Any]) -> Advice:
    """A finding as `--json` has it, in words."""
    where = f"{Path(finding['file']).name}:{finding['line']}" if finding.get("file") else ""
    sizes = {"bytes": "{}", "bytes_per_step": "{} a step", "saving_bytes": "{} would be saved"}
    said = [words.format(format_size(finding[key])) for key, words in sizes.items() if finding.get(key)]
    if finding.get("holder"):
        said.append(f"held by {finding['holder']}")
    code = "  ".join(filter(None, (where, finding.get("code") or "")))
    return Advice(
        finding["severity"], finding["title"], code, ", ".join(said), finding.get("fix") or "", finding["id"]
    )


def _lead(recording: Recording) -> str:
    peak, host = device_peak(recording), host_peak(recording)
    parts = []
    if peak is not None:
        parts.append(f"{format_size(peak.bytes)} at the device's peak, {step_words(recording, peak.step)}")
    if host is not None:
        parts.append(f"{format_size(host.rss_bytes or 0)} of host memory at most")
    return "; ".join([*parts, outcome_words(recording.outcome)]) + "."


def _figures(recording: Recording) -> list[Figure]:
    peak, host = device_peak(recording), host_peak(recording)
    figures = []
    if peak is not None:
        figures.append(Figure("device peak", format_size(peak.bytes), f"after {peak.time:.1f} s, {_site(peak)}"))
    taken = reserve_unused(recording)
    if taken is not None:
        reserved, unused = taken
        figures.append(Figure("reserved", format_size(reserved), f"{format_size(unused)} of it not in use at the peak"))
    if host is not None:
        figures.append(Figure("host peak", format_size(host.rss_bytes or 0), f"RSS, after {host.time:.1f} s"))
    figures.append(Figure("run", counted(step_count(recording), "step"), f"in {recording.outcome.seconds:.1f} s"))
    grown = {
        "on the host": growth(recording, lambda step: step.rss_bytes),
        "on the device": growth(recording, lambda step: step.device_bytes),
    }
    known = [(where, format_size(change.bytes_per_step)) for where, change in grown.items() if change is not None]
    if known:
        (where, size), *others = known
        rest = [f"{size} {where}" for where, size in others]
        figures.append(Figure("growth a step", size, "; ".join([where, *rest, "median of the later half"])))
    return figures


def _site(peak: Peak) -> str:
    detail = peak.detail
    if detail is None or detail.peak_site is None:
        return "the allocator's own count"
    site = detail.sites[detail.peak_site]
    return " · ".join(part for part in (site.kind, site.layer or site.op, short(site.source)) if part)


def _whole_run(recording: Recording) -> Chart | None:
    """Host and device on one time axis."""
    samples = run_samples(recording)
    of: list[tuple[str, str, bool, Callable[[Sample], int | None]]] = [
        ("device, highest", "gradients", False, lambda s: s.device_peak_bytes),
        ("device, in use", "activations", False, lambda s: s.device_bytes),
        ("device, reserved", "optimizer state", True, lambda s: s.reserved_bytes),
        ("host RSS", "parameters", False, lambda s: s.rss_bytes or None),
        ("host swap", "inputs", False, lambda s: s.swap_bytes),
        ("tf.data buffers", "temporaries", False, lambda s: s.data_bytes),
    ]
    kept = _kept(samples, [values for *_, values in of])
    series = [
        Series(name, values, role, dashed=dashed)
        for name, role, dashed, get in of
        if any(values := [get(samples[i]) for i in kept])
    ]
    if not series:
        return None
    words, said = _steps_said(recording, [samples[i] for i in kept])
    note = "Device and host on one axis. Shaded: steps recorded in full. Dashed: what the allocator has taken."
    return Chart(
        "The whole run", note, "seconds", [samples[i].time for i in kept], series,
        marks=_step_marks(recording), words=words, said=said,
    )  # fmt: skip


def _kept(samples: Sequence[Sample], of: Sequence[Callable[[Sample], int | None]]) -> list[int]:
    """Indices of the samples to draw: few enough, and the extremes of everything that is drawn among them."""
    kept: set[int] = set()
    for get in of:
        known = [i for i, sample in enumerate(samples) if get(sample) is not None]
        kept.update(known[i] for i in thinned([get(samples[i]) or 0 for i in known], POINTS // len(of) * 2))
    return sorted(kept)


def _steps_said(recording: Recording, samples: Sequence[Sample]) -> tuple[list[str], list[int]]:
    """What each sample's tooltip says: (the words, which of them)."""
    words = ["", *step_names(recording)]
    used = sorted({sample.step + 1 for sample in samples if sample.step is not None and sample.step + 1 < len(words)})
    index = {number: place for place, number in enumerate(used, 1)}
    said = [0 if sample.step is None else index.get(sample.step + 1, 0) for sample in samples]
    return ["", *(words[number] for number in used)], said


def _step_marks(recording: Recording) -> list[Mark]:
    """Detailed steps as areas; the beginning of every step, or of some of them when there are many."""
    steps, spans = main_steps(recording), step_spans(recording)
    marks = [Mark(d.start, _place(recording, d.step), d.stop) for d in recording.details]
    every = -(-len(steps) // MOST_STEP_MARKS) or 1
    marks += [
        Mark(step.start, f"{spans[number][0]:,}", faint=True)
        for place, (number, step) in enumerate(steps, 1)
        if place == 1 or place % every == 0
    ]
    peak = device_peak(recording)
    return [*marks, *([Mark(peak.time, f"peak {format_size(peak.bytes)}")] if peak else [])]


def _place(recording: Recording, number: int) -> str:
    """ "step 3" for the third of the run's own steps; else what it was."""
    return step_words(recording, number).removeprefix("in ")


def _counts(recording: Recording) -> Chart | None:
    """Things that should not grow with the steps."""
    samples = [s for s in recording.samples if s.eager_tensors is not None or s.traces is not None]
    of: list[tuple[str, str, Callable[[Sample], int | None]]] = [
        ("live eager tensors", "count", lambda s: s.eager_tensors),
        ("live tapes", "count", lambda s: s.tapes),
        ("graphs traced", "count", lambda s: s.traces),
        ("eager tensors", "bytes", lambda s: s.eager_bytes),
        ("graphs", "bytes", lambda s: s.graph_bytes),
    ]
    kept = _kept(samples, [values for *_, values in of])
    series = [
        Series(name, values, "", axis, dashed=axis == "count")
        for name, axis, get in of
        if any(values := [get(samples[i]) for i in kept])
    ]
    if not series:
        return None
    note = "Numbers that rise with every step are kept by something. Bytes on the left, counts (dashed) on the right."
    return Chart(
        "Eager tensors, tapes and graphs", note, "seconds", [samples[i].time for i in kept], series,
        marks=[mark for mark in _step_marks(recording) if mark.faint],
    )  # fmt: skip


def _details(recording: Recording, first: Detail) -> Iterator[Block]:
    others = sorted((d for d in recording.details if d is not first), key=lambda d: -d.peak_bytes)
    for detail in (first, *others[: MOST_DETAILS - 1]):
        yield detail_chart(detail, f"{_place(recording, detail.step)} in detail ({detail.reason})".capitalize())


def detail_chart(detail: Detail, title: str) -> Chart:
    """Chunk bytes over a detailed step, stacked by category, the peak marked."""
    curve = category_curve(detail)
    totals = [sum(level.values()) for level in curve]
    kept = thinned(totals, POINTS, always=[detail.peak_at])
    made = {a.start: a.site for a in detail.allocations if a.start}
    words, index, said, last = ["before the step"], {}, [], None
    sites = [last := made.get(i, last) for i in range(len(curve))]
    for i in kept:
        site = sites[i]
        if site is not None and site not in index:
            index[site] = len(words)
            words.append(_site_words(detail, site))
        said.append(index.get(site, 0) if site is not None else 0)
    names = [name for name in curve[0] if any(level[name] for level in curve)] if curve else []
    series = [Series(name, [curve[i][name] for i in kept], name) for name in names]
    unit, scale = ("seconds", 1.0) if detail.stop - detail.start > LONG_STEP else ("milliseconds", 1e3)
    times = [round((time - detail.start) * scale, 4) for time in detail.times]
    at_peak = "peak" if detail.peak_site is None else f"peak: {_site_words(detail, detail.peak_site)}"
    note = (
        f"Every allocation and free, in chunk bytes. {format_size(detail.begin_bytes)} before, "
        f"{format_size(detail.peak_bytes)} at the peak ({format_size(detail.peak_requested_bytes)} asked for), "
        f"{format_size(detail.end_bytes)} after."
    )
    return Chart(
        title, note, f"{unit} since the step began", [times[i] for i in kept], series, stacked=True, steps=True,
        marks=[Mark(times[detail.peak_at], at_peak)], words=words, said=said,
    )  # fmt: skip


def _site_words(detail: Detail, number: int) -> str:
    site = detail.sites[number]
    return " · ".join(part for part in (site.kind, site.layer or site.op, short(site.source)) if part)


def _peak(recording: Recording, detail: Detail) -> Iterator[Block]:
    sizes = by_category(detail)
    ranked = sorted((name for name, size in sizes.items() if size), key=lambda name: -sizes[name])
    modes = by_mode(detail)
    shares = ", ".join(f"{format_size(size)} by {mode} ops" for mode, size in modes.items() if mode)
    note = f"They sum to {format_size(detail.peak_bytes)}, which is what the allocator said. Made: {shares}."
    peak = device_peak(recording)
    if peak is not None and peak.detail is not detail:
        more = format_size(peak.bytes - detail.peak_bytes)
        note += f" The run went {more} higher, to {format_size(peak.bytes)}, in a step that was not recorded in full."
    yield Bars("Categories at the peak", note, ["measured"], [Bar(n, [sizes[n]], MEANING[n], n) for n in ranked])
    found = _items(recording, detail)
    yield peak_tree(found, "Boxes are as large as their bytes: layers, and in them the ops. Click a box to go into it.")
    yield _lines(recording, detail)
    yield peak_table(found, "Chunk bytes.")


def _items(recording: Recording, detail: Detail) -> list[Item]:
    code = {site.source: line_text(recording, site.source) for site in detail.sites}
    found = []
    for a in detail.at_peak:
        site = detail.sites[a.site]
        shape = f"{a.dtype} {a.shape}".strip()
        where = (site.op, site.kind, site.layer, site.source)
        found.append(Item(a.chunk_bytes, a.category, *where, shape, code[site.source]))
    return found


def _lines(recording: Recording, detail: Detail) -> Table:
    rows: list[Row] = [
        [size, percent(size, detail.peak_bytes), line_name(source), line_text(recording, source)]
        for source, size in by_line(detail).items()
    ]
    columns = [Column("bytes", "bytes"), Column("share"), Column("line", "name"), Column("code", "name")]
    return Table("Lines that hold memory at the peak", "Your lines that made what was alive then.", columns, rows)
