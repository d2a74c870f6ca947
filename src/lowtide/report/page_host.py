"""The parts of a Recording's page beside the device: what the host holds, pipelines, graphs, what is alive, the run."""

from __future__ import annotations

from collections.abc import Iterator

from lowtide.record import HOST_PARTS, Recording, Stage
from lowtide.record.extremes import fullest_stages, line_text
from lowtide.record.views import host_lines, totalled
from lowtide.report.contents import counted, short
from lowtide.report.page import Block, Chart, Column, Facts, Row, Series, Table
from lowtide.report.words import device_names, outcome_words
from lowtide.units import format_size

MOST_ROWS = 500


def host_blocks(recording: Recording) -> Iterator[Block | None]:
    """In the order they are read; None for what was not recorded."""
    yield _host(recording)
    yield _host_lines(recording)
    yield _stages_over_time(recording)
    yield _stages(recording)
    yield _graphs(recording)
    yield _alive(recording)
    yield _tapes(recording)
    yield _facts(recording)


def _host(recording: Recording) -> Chart | None:
    splits = recording.splits
    if not splits:
        return None
    series = [
        Series(part, [split.parts.get(part, 0) for split in splits], role)
        for part, role in zip(HOST_PARTS, _HOST_ROLES, strict=True)
        if any(split.parts.get(part) for split in splits)
    ]
    note = "The process's resident memory. Reserve and what malloc keeps are taken from the system and hold nothing."
    return Chart("What host memory is made of", note, "seconds", [split.time for split in splits], series, stacked=True)


_HOST_ROLES = (
    "activations", "optimizer state", "parameters", "temporaries", "constants", "inputs", "gradients", "other",
)  # fmt: skip


def _host_lines(recording: Recording) -> Table | None:
    """The last count of what Python code holds, by line."""
    lines = host_lines(recording)
    if not lines:
        return None
    rows: list[Row] = [
        [line.bytes, line.blocks, line.kind, short(line.source), line_text(recording, line.source)] for line in lines
    ]
    columns = [
        Column("bytes", "bytes"), Column("blocks", "number"), Column("kind", "tag"), Column("line", "name"),
        Column("code", "code"),
    ]  # fmt: skip
    at = lines[0].time
    note = f"Allocated by Python code and not freed, after {at:.1f} s, as {recording.run.host_tracer} counts it."
    return Table("Python and NumPy by line", note, columns, rows[:MOST_ROWS], pick=2)


def _stage_name(stage: Stage) -> str:
    return f"{stage.name} {short(stage.source)}".strip() + (f" (pipeline {stage.pipeline})" if stage.pipeline else "")


def _stages_over_time(recording: Recording) -> Chart | None:
    times = sorted({stage.time for stage in recording.stages})
    if len(times) < 2 or not any(stage.buffered_bytes for stage in recording.stages):
        return None
    by_name: dict[str, dict[float, int]] = {}
    for stage in recording.stages:
        at = by_name.setdefault(_stage_name(stage), {})
        at[stage.time] = at.get(stage.time, 0) + stage.buffered_bytes
    series = [Series(name, [at.get(time, 0) for time in times]) for name, at in by_name.items() if any(at.values())]
    note = "Elements that each stage has ready, as tf.data counts them."
    return Chart("tf.data stages", note, "seconds", times, series, stacked=True)


def _stages(recording: Recording) -> Table | None:
    if not recording.stages:
        return None
    rows: list[Row] = [
        [stage.buffered_bytes, stage.buffered_elements, stage.name, stage.pipeline, short(stage.source),
         ", ".join(f"{name} {value:g}" for name, value in stage.parameters.items())]
        for stage in fullest_stages(recording)
    ]  # fmt: skip
    columns = [
        Column("bytes", "bytes"), Column("elements", "number"), Column("stage"), Column("pipeline", "number"),
        Column("line", "name"), Column("settings"),
    ]  # fmt: skip
    return Table("tf.data stages at their fullest", "", columns, rows)


def _graphs(recording: Recording) -> Table | None:
    if not recording.traces:
        return None
    rows: list[Row] = [
        [round(t.time, 2), t.function, t.nodes, t.graph_bytes, t.constant_bytes, t.rss_bytes, short(t.defined), t.cause]
        for t in recording.traces
    ]
    columns = [
        Column("seconds", "number"), Column("function", "name"), Column("nodes", "number"), Column("graph", "bytes"),
        Column("constants", "bytes"), Column("RSS grew", "bytes"), Column("line", "name"), Column("why traced"),
    ]  # fmt: skip
    note = "Memory to build a graph is apart from memory to run it."
    return Table("Graphs built", note, columns, rows[:MOST_ROWS])


def _alive(recording: Recording) -> Table | None:
    """The last census: what was alive, and who held it."""
    if not recording.census:
        return None
    last = max(held.time for held in recording.census)
    rows: list[Row] = [
        [held.bytes, held.objects, held.kind, held.holder or "TensorFlow", short(held.made), held.example]
        for held in sorted(recording.census, key=lambda held: -held.bytes)
        if held.time == last
    ]
    columns = [
        Column("bytes", "bytes"), Column("count", "number"), Column("kind"), Column("held by", "name"),
        Column("made at", "name"), Column("for example", "name"),
    ]  # fmt: skip
    return Table("Alive, and held by whom", f"Seen after {last:.1f} s.", columns, rows[:MOST_ROWS], pick=2)


def _tapes(recording: Recording) -> Table | None:
    if not recording.tapes:
        return None
    rows: list[Row] = [
        [short(tape.source), tape.made, tape.alive, tape.most_alive, "yes" if tape.persistent else "no", tape.gradients]
        for tape in recording.tapes
    ]
    columns = [
        Column("line", "name"), Column("made", "number"), Column("alive at the end", "number"),
        Column("most alive", "number"), Column("persistent"), Column("gradients asked", "number"),
    ]  # fmt: skip
    return Table("Gradient tapes", "", columns, rows)


def _facts(recording: Recording) -> Facts:
    run, machine = recording.run, recording.run.machine
    limit = machine.cgroup_limit_bytes
    memory = f"{format_size(machine.memory_bytes)} of RAM, {format_size(machine.swap_bytes)} of swap"
    rows = [
        ("script", " ".join((run.script, *run.arguments))),
        ("in", run.folder),
        ("ended", outcome_words(recording.outcome)),
        ("machine", f"{counted(machine.cores, 'core')}, {memory}"),
        ("control group", f"limited to {format_size(limit)}" if limit else "no limit"),
        *(("device", text) for text in device_names(machine.devices)),
        ("Python memory", f"traced by {run.host_tracer}" if run.host_tracer != "off" else "not traced"),
        *sorted(run.environment.items()),
        *(("not recorded", note) for note in recording.notes),
    ]  # fmt: skip
    large = totalled((f"{row.what} {short(row.source)}".strip(), row.bytes) for row in recording.data)
    rows += [("data given", f"{name}: {format_size(size)}") for name, size in list(large.items())[:8]]
    return Facts("The run", rows)
