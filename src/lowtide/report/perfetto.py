"""A Recording as a trace for the Perfetto UI: counters over the run, steps and graphs as slices, tensors by lifetime.

The format is Chrome's trace events in JSON, which Perfetto reads: times in microseconds, `C` for counters, `X` for
slices, `b` and `e` for what overlaps, `i` for a moment, `M` for names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import inf
from typing import Any

from lowtide.record import Detail, Recording, Sample
from lowtide.record.views import category_curve, device_peak
from lowtide.report.contents import short
from lowtide.simulate.levels import thinned
from lowtide.units import format_size

PROCESS = 1
STEPS, GRAPHS, OTHERS, TENSORS = 1, 2, 3, 4
MOST_TENSORS = 400
"""Lifetimes drawn of each detailed step: the largest."""
MOST_LEVELS = 4000

Event = dict[str, Any]

_COUNTERS = {
    "device in use": "device_bytes", "device highest": "device_peak_bytes", "device reserved": "reserved_bytes",
    "host RSS": "rss_bytes", "host available": "available_bytes", "host swap": "swap_bytes",
    "control group": "cgroup_bytes", "malloc live": "heap_bytes", "malloc free": "heap_free_bytes",
    "python": "python_bytes", "tf.data buffers": "data_bytes", "eager tensors": "eager_bytes",
    "live eager tensors": "eager_tensors", "live tapes": "tapes", "graphs traced": "traces", "graphs": "graph_bytes",
}  # fmt: skip
"""Counter track to the field of a Sample. Perfetto adds the unit: "host RSS bytes"."""


def perfetto_trace(recording: Recording) -> str:
    """The whole file. What it is about comes first: `report/files.py` knows our files by that."""
    events = [event for part in (_names, _counters, _details, _peak) for event in part(recording)]
    events += _nested([*_steps(recording), *_graphs(recording)])
    run = recording.run
    about = {"generator": "lowtide", "script": " ".join((run.script, *run.arguments)), **run.versions}
    return json.dumps({"otherData": about, "displayTimeUnit": "ms", "traceEvents": events}, separators=(",", ":"))


def _names(recording: Recording) -> Iterator[Event]:
    yield _named("process_name", recording.run.script)
    for thread, name in ((STEPS, "steps"), (GRAPHS, "graphs built"), (OTHERS, "other calls"), (TENSORS, "tensors")):
        yield {**_named("thread_name", name), "tid": thread}


def _named(what: str, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": PROCESS, "ts": 0, "args": {"name": name}}


def _counters(recording: Recording) -> Iterator[Event]:
    for name, field in _COUNTERS.items():
        known = [(sample, value) for sample in recording.samples if (value := _field(sample, field)) is not None]
        if any(value for _, value in known):
            unit = "bytes" if field.endswith("_bytes") else "count"
            for sample, value in known:
                yield _counter(name, sample.time, {unit: value})
    for stage in recording.stages:
        name = f"tf.data {stage.name} {short(stage.source)} #{stage.pipeline}"
        yield _counter(name, stage.time, {"bytes": stage.buffered_bytes})


def _field(sample: Sample, field: str) -> int | None:
    value: int | None = getattr(sample, field)
    return value


def _counter(name: str, time: float, values: dict[str, int]) -> Event:
    return {"ph": "C", "name": name, "pid": PROCESS, "ts": _micro(time), "args": values}


def _steps(recording: Recording) -> Iterator[Event]:
    for number, step in enumerate(recording.steps):
        yield {
            "ph": "X", "cat": "step", "name": f"{step.kind} {step.name}".strip(), "pid": PROCESS,
            "tid": STEPS if step.kind != "next" else OTHERS, **_span(step.start, step.stop),
            "args": {
                "number": number, "line": short(step.source), "device_bytes": step.device_bytes,
                "device_peak_bytes": step.device_peak_bytes, "rss_bytes": step.rss_bytes, "in_detail": step.detailed,
            },
        }  # fmt: skip


def _graphs(recording: Recording) -> Iterator[Event]:
    for trace in recording.traces:
        yield {
            "ph": "X", "cat": "graph", "name": f"trace {trace.function}", "pid": PROCESS, "tid": GRAPHS,
            **_span(max(0.0, trace.time - trace.seconds), trace.time),
            "args": {
                "cause": trace.cause, "nodes": trace.nodes, "graph_bytes": trace.graph_bytes,
                "constant_bytes": trace.constant_bytes, "line": short(trace.defined),
            },
        }  # fmt: skip


def _nested(slices: list[Event]) -> list[Event]:
    """Slices of one track, each within those that it began in: Perfetto drops one that outlives them."""
    around: dict[int, list[float]] = {}  # track to the ends of the slices that are open
    out = []
    for event in sorted(slices, key=lambda event: (event["ts"], -event["dur"])):
        ends = around.setdefault(event["tid"], [])
        while ends and ends[-1] <= event["ts"]:
            ends.pop()
        stop = min(event["ts"] + event["dur"], *ends[-1:], inf)
        ends.append(stop)
        out.append({**event, "dur": _rounded(stop - event["ts"])})
    return out


def _details(recording: Recording) -> Iterator[Event]:
    for detail in recording.details:
        yield from _levels(detail)
        yield from _lifetimes(detail)


def _levels(detail: Detail) -> Iterator[Event]:
    """Bytes by category, one track each, at every allocation and free or at the telling ones of them."""
    curve = category_curve(detail)
    kept = thinned([sum(level.values()) for level in curve], MOST_LEVELS, always=[detail.peak_at])
    for category in curve[0] if curve else ():
        last = None
        for i in kept:
            if curve[i][category] != last:
                last = curve[i][category]
                yield _counter(f"in detail: {category}", detail.times[i], {"bytes": last})


def _lifetimes(detail: Detail) -> Iterator[Event]:
    """The largest tensors from when they were allocated to when they were freed."""
    largest = sorted(detail.allocations, key=lambda a: -a.chunk_bytes)[:MOST_TENSORS]
    for number, a in enumerate(largest):
        site = detail.sites[a.site]
        label = {
            "cat": a.category, "id": f"{detail.step}.{number}", "name": f"{site.kind} {site.layer or site.op}".strip(),
            "pid": PROCESS, "tid": TENSORS,
        }  # fmt: skip
        stop = detail.stop if a.stop is None or a.stop >= len(detail.times) else detail.times[a.stop]
        about = {
            "op": site.op, "layer": site.layer, "line": short(site.source), "category": a.category,
            "chunk_bytes": a.chunk_bytes, "requested_bytes": a.requested_bytes, "shape": f"{a.dtype} {a.shape}".strip(),
        }  # fmt: skip
        yield {**label, "ph": "b", "ts": _micro(detail.times[a.start]), "args": about}
        yield {**label, "ph": "e", "ts": _micro(stop)}


def _peak(recording: Recording) -> Iterator[Event]:
    peak = device_peak(recording)
    if peak is not None:
        name = f"device peak {format_size(peak.bytes)}"
        yield {"ph": "i", "name": name, "cat": "peak", "pid": PROCESS, "tid": STEPS, "ts": _micro(peak.time), "s": "p"}


def _span(start: float, stop: float) -> Event:
    """From when and how long. Its end is rounded as a beginning is, or what follows at once would begin within it."""
    return {"ts": _micro(start), "dur": _rounded(_micro(stop) - _micro(start))}


def _micro(seconds: float) -> float:
    return _rounded(seconds * 1e6)


def _rounded(microseconds: float) -> float:
    """To nanoseconds, as Perfetto does."""
    return round(microseconds, 3)
