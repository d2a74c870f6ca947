"""A Recording in the terminal: one screen, 80 columns. Computes nothing; `record/views.py` does."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from lowtide.program import Source
from lowtide.record import Detail, Recording, Sample
from lowtide.record.views import (
    Peak,
    by_category,
    by_layer,
    by_line,
    by_mode,
    curve,
    device_peak,
    failed,
    fullest_detail,
    growth,
    host_lines,
    host_peak,
    host_split_at_peak,
    is_of_a_script,
    main_kind,
    reserve_unused,
    step_count,
    step_spans,
    totalled,
)
from lowtide.report.contents import line_name
from lowtide.report.words import again_words, counted_steps, is_module, step_names
from lowtide.units import format_size

WIDTH, CHART, HEIGHT, TOP, TOP_OF_HOST = 80, 62, 4, 5, 3
NAME, NAME_AND_CODE = 44, 64
"""Columns of a line's name at most, and of the name with its code: the code is cut, the name is not."""
GROWS = 16 * 1024
"""Bytes a step from which on the host's growth is worth a closer look."""
_BLOCKS = " ▁▂▃▄▅▆▇█"


def render_recording(recording: Recording, file: str | None, width: int = WIDTH) -> str:
    """The summary as text, as `print` would show it."""
    console = Console(width=width, force_terminal=False)
    with console.capture() as captured:
        print_recording(console, recording, file)
    return captured.get()


def print_recording(console: Console, recording: Recording, file: str | None) -> None:
    """The summary. `file` has the recording, where one was kept. Long commands are left whole, to be copied."""
    console.print(recording_view(recording, file), crop=False)


def recording_view(recording: Recording, file: str | None) -> RenderableType:
    """The peak, when and where; the run as a chart; what the peak is made of; what to do next."""
    return Group(*_parts(recording, file))


def _parts(recording: Recording, file: str | None) -> Iterator[RenderableType]:
    yield _headline(recording)
    yield _facts(recording)
    yield from _charts(recording)
    detail = fullest_detail(recording)
    if detail is not None and detail.peak_bytes:
        yield _contents(detail, device_peak(recording))
        yield _lines(recording, detail)
    yield _host(recording)
    if recording.lines:
        yield _python_lines(recording)
    for note in recording.notes:
        yield Text(f"Note {note}", style="yellow")
    if commands := list(_commands(recording, file)):
        yield _next(commands)


def _headline(recording: Recording) -> Text:
    text = Text(Path(recording.run.script).name, style="bold")
    text.append(f" {_ending(recording)} {recording.outcome.seconds:.1f} s", style="")
    kind = main_kind(recording)
    if kind is not None:
        text.append(f", {counted_steps(step_count(recording), kind)}", style="")
    return text


def _ending(recording: Recording) -> str:
    outcome = recording.outcome
    cause = " for want of memory" if outcome.out_of_memory else ""
    if outcome.how == "signal":
        return f"was ended by {outcome.signal}{cause} after"
    if outcome.how == "exception":
        return f"failed with {outcome.exception}{cause} after"
    if outcome.how == "exit":
        return f"exited with {outcome.exit_code} after"
    return "ran for" if outcome.how == "done" else "was recorded up to"


def _facts(recording: Recording) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True, min_width=11)
    table.add_column(justify="right", no_wrap=True, style="bold", min_width=10)
    table.add_column(overflow="fold")
    for row in _fact_rows(recording):
        table.add_row(*(_plain(cell) if isinstance(cell, str) else cell for cell in row))
    return table


def _fact_rows(recording: Recording) -> Iterator[tuple[str, str, str]]:
    peak = device_peak(recording)
    if peak is not None:
        yield "device peak", format_size(peak.bytes), _when(recording, peak.time, peak.step)
        detail = peak.detail or fullest_detail(recording)
        if detail is not None:
            yield "", "", _where(detail, peak.bytes)
    refusal = recording.outcome.refusal
    if refusal is not None:
        asked = format_size(refusal.requested_bytes) if refusal.requested_bytes else "?"
        yield "refused", asked, f"{refusal.dtype} {refusal.shape} {refusal.op} {_short(refusal.source)}".strip()
    host = host_peak(recording)
    if host is not None:
        yield "host peak", format_size(host.rss_bytes or 0), _host_when(host)
    reserve = reserve_unused(recording)
    if reserve is not None:
        yield "reserved", format_size(reserve[0]), f"by the allocator, {format_size(reserve[1])} of it never in use"
    yield from _growth_rows(recording)


def _growth_rows(recording: Recording) -> Iterator[tuple[str, str, str]]:
    device = growth(recording, lambda step: step.device_bytes)
    host = growth(recording, lambda step: step.rss_bytes)
    if host is None:
        return
    on_device = f"{_signed(device.bytes_per_step)} on the device, " if device else ""
    yield "growth", "", f"{on_device}{_signed(host.bytes_per_step)} on the host, a step, after warm-up"


def _signed(size: float) -> str:
    return f"{'+' if size > 0 else ''}{format_size(round(size))}"


def _host_when(host: Sample) -> str:
    line = f" {_short(host.source)}" if host.source else ""
    left = f", {format_size(host.available_bytes)} left" if host.available_bytes else ""
    return f"RSS at {host.time:.1f} s{line}{left}"


def _when(recording: Recording, time: float, step: int | None) -> str:
    if step is None or not 0 <= step < len(recording.steps):
        return f"at {time:.1f} s"
    name = step_names(recording)[step]
    if step in step_spans(recording):
        return f"in {name} of {step_count(recording):,}, at {time:.1f} s"
    return f"at {time:.1f} s, {name}"


def _where(detail: Detail, peak: int) -> str:
    place = "as the step began"
    if detail.peak_site is not None:
        site = detail.sites[detail.peak_site]
        place = f"{site.kind or site.op}{' of ' + site.layer if site.layer else ''} {_short(site.source)}"
    if detail.peak_bytes < peak:
        return f"{place} (of a step that reached {format_size(detail.peak_bytes)})"
    return place


def _charts(recording: Recording) -> Iterator[RenderableType]:
    if any(sample.device_bytes is not None for sample in recording.samples):
        yield _chart(recording, "device", lambda s: s.device_peak_bytes or s.device_bytes, "cyan")
    yield _chart(recording, "host RSS", lambda s: s.rss_bytes, "magenta", last=True)


def _chart(recording: Recording, name: str, of: Any, style: str, last: bool = False) -> Text:
    values = curve(recording, of, CHART)
    top = max(values, default=0) or 1
    text = Text()
    for row in range(HEIGHT - 1, -1, -1):
        label = f"{format_size(top):>10} " if row == HEIGHT - 1 else f"{name:>10} " if row == 0 else " " * 11
        text.append(label, style="dim")
        text.append("".join(_block(value / top * HEIGHT - row) for value in values) + "\n", style=style)
    if last:
        text.append(f"{'0 s':>14}{recording.outcome.seconds:>{CHART - 5}.1f} s", style="dim")
    return text if last else text[: len(text) - 1]


def _block(height: float) -> str:
    return _BLOCKS[min(8, max(0, round(height * 8)))]


def _titled(title: str) -> Table:
    look = {"title": title, "title_justify": "left", "title_style": "bold", "show_header": False}
    return Table(box=None, padding=(0, 1), min_width=len(title) + 1, **look)  # type: ignore[arg-type]  # rich's literals


def _contents(detail: Detail, peak: Peak | None) -> Columns:
    """What the fullest step recorded in full was made of: the peak's contents where it reached it, or came near."""
    is_peak = peak is None or peak.detail is not None
    categories = _titled("The peak by category" if is_peak else f"{format_size(detail.peak_bytes)} of it by category")
    for table_column in ({"no_wrap": True}, {"justify": "right", "no_wrap": True}, {"justify": "right"}):
        categories.add_column(**table_column)
    for name, size in sorted(by_category(detail).items(), key=lambda item: -item[1]):
        if size:
            categories.add_row(name, format_size(size), f"{size / detail.peak_bytes:.0%}")
    layers = _titled("by layer")
    layers.add_column(justify="right", no_wrap=True)
    layers.add_column(overflow="fold", max_width=30)
    for layer, size in list(by_layer(detail).items())[: TOP + 1]:
        layers.add_row(format_size(size), _plain(layer or "(no layer)"))
    return Columns([categories, layers], padding=(0, 2))


def _lines(recording: Recording, detail: Detail) -> Table:
    modes = by_mode(detail)
    share = modes.get("eager", 0) / max(1, sum(modes.values()))
    title = f"by line ({share:.0%} made by eager ops, {1 - share:.0%} by graphs)"
    return _line_table(recording, title, list(by_line(detail).items())[: TOP + 1])


def _python_lines(recording: Recording) -> Table:
    lines = host_lines(recording)
    title = f"Python and NumPy by line after {lines[0].time:.1f} s, as {recording.run.host_tracer} counts"
    bytes_of = totalled((line.source, line.bytes) for line in lines)
    return _line_table(recording, title, list(bytes_of.items())[:TOP_OF_HOST])


def _line_table(recording: Recording, title: str, lines: Iterable[tuple[Source | None, int]]) -> Table:
    table = _titled(title)
    table.add_column(justify="right", no_wrap=True)
    rows = [(line_name(source), _code(recording, source), size) for source, size in lines]
    width = min(NAME, max((cell_len(name) for name, _, _ in rows), default=0))
    table.add_column(overflow="fold", min_width=width, max_width=width)
    table.add_column(overflow="ellipsis", no_wrap=True, max_width=NAME_AND_CODE - width, style="dim")
    for name, code, size in rows:
        table.add_row(format_size(size), _plain(name), _plain(code))
    return table


def _code(recording: Recording, source: Source | None) -> str:
    """The line itself, as it was when it ran."""
    if source is None:
        return ""
    lines = recording.sources.get(source.file, "").splitlines()
    return lines[source.line - 1].strip() if 0 < source.line <= len(lines) else ""


def _host(recording: Recording) -> Text:
    split = host_split_at_peak(recording)
    if split is None:
        return Text()
    shares = sorted(((size, name) for name, size in split.parts.items() if size > 0), reverse=True)
    text = Text("Host ", style="bold")
    text.append(", ".join(f"{format_size(size)} {name}" for size, name in shares[:7]), style="")
    return text


def _next(commands: Iterable[tuple[str, str]]) -> Text:
    text = Text("Next", style="bold", no_wrap=True, overflow="ignore")
    for command, what in commands:
        fits = len(command) + len(what) + 4 <= WIDTH
        text.append(f"\n {command}", style="")
        text.append(f"   {what}" if fits else f"\n   {what}", style="dim")
    return text


def _commands(recording: Recording, file: str | None) -> Iterator[tuple[str, str]]:
    """What to type now, and what for."""
    if file is not None:
        yield f"lowtide report {shlex.quote(file)} --html out.html", "all of it, as a page"
    if not is_of_a_script(recording):
        return
    run, again, host = recording.run, again_words(recording.run), growth(recording, lambda step: step.rss_bytes)
    trains = device_peak(recording) is not None and main_kind(recording) in ("fit", "function")
    if trains and not failed(recording.outcome) and not is_module(run):
        yield f"lowtide plan --budget 80% {again}", "in how little it can train, same results"
    if host is not None and host.bytes_per_step > GROWS and run.host_tracer == "off":
        yield f"lowtide run --host tracemalloc {again}", "names Python's lines"


def _short(source: Source | None) -> str:
    return f"{Path(source.file).name}:{source.line}" if source else ""


def _plain(text: str) -> Text:
    """Names from the script are data: no markup in them."""
    return Text(text)


def live_line(
    sample: Sample, latest: Sample | None, steps: int, peaks: tuple[int, int], grown: float | None, width: int
) -> Text:
    """One line while the run goes on: step, device and host bytes now and at the most, growth; in brief if narrow."""
    device = None if latest is None else latest.device_bytes
    host = sample.rss_bytes or 0
    text = Text(" lowtide ", style="reverse")
    text.append(f" {sample.time:.0f} s  step {steps}")
    brief = text.copy()
    for name, now, peak in (("device", device, peaks[0]), ("host", host, peaks[1])):
        if now is not None:
            text.append(f"  {name} {format_size(now)} (peak {format_size(peak)})")
            brief.append(f"  {name} {_brief(now)}/{_brief(peak)}")
    if grown is not None:
        text.append(f"  {_signed(grown)}/step")
        brief.append(f"  {'+' if grown > 0 else ''}{_brief(round(grown))}/step")
    return text if text.cell_len <= width else brief


def _brief(size: float) -> str:
    """About three digits and a letter."""
    number, unit = format_size(abs(size)).split()
    return f"{'-' if size < 0 else ''}{number[:4].rstrip('.')}{unit[0]}"
