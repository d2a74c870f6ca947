"""Timeline and Forecast <-> file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from lowtide.program import Note, Source
from lowtide.program.files import load_artifact, write_artifact
from lowtide.simulate.forecast import Forecast
from lowtide.simulate.timeline import Buffer, Maker, Preparation, Timeline

TIMELINE_VERSION = FORECAST_VERSION = 1


def save_timeline(timeline: Timeline, path: str | os.PathLike[str]) -> None:
    write_artifact(path, "timeline", TIMELINE_VERSION, timeline_to_data(timeline))


def load_timeline(path: str | os.PathLike[str]) -> Timeline:
    return load_artifact(path, "timeline", TIMELINE_VERSION, timeline_from_data)


def save_forecast(forecast: Forecast, path: str | os.PathLike[str]) -> None:
    body = {
        "timeline": timeline_to_data(forecast.timeline),
        "plain": [forecast.plain_low, forecast.plain_high],
        "law": [forecast.fixed, forecast.per_sample],
        "budget": forecast.budget,
        "largest_batch": forecast.largest_batch,
        "notes": [[n.what, n.treatment, n.bytes, n.why] for n in forecast.notes],
        "versions": dict(forecast.versions),
        "compiler": forecast.compiler,
    }
    write_artifact(path, "prediction", FORECAST_VERSION, body)


def load_forecast(path: str | os.PathLike[str]) -> Forecast:
    return load_artifact(path, "prediction", FORECAST_VERSION, _forecast_from_data)


def timeline_to_data(timeline: Timeline) -> dict[str, Any]:
    return {
        "batch": timeline.batch,
        "buffers": timeline.buffers,
        "makers": timeline.makers,
        "end": timeline.end,
        "requested": [timeline.resident, timeline.peak],
        "chunks": [timeline.chunk_resident, timeline.chunk_peak],
        "at": [timeline.peak_at, timeline.peak_maker],
        "preparation": timeline.preparation,
        "untouched": timeline.untouched,
    }


def timeline_from_data(data: Mapping[str, Any]) -> Timeline:
    resident, peak = data["requested"]
    chunk_resident, chunk_peak = data["chunks"]
    peak_at, peak_maker = data["at"]
    small_change, *rest = data["preparation"]
    makers = tuple(Maker(n, k, layer, Source(*s) if s else None) for n, k, layer, s in data["makers"])
    return Timeline(
        batch=data["batch"],
        buffers=tuple(Buffer(*row) for row in data["buffers"]),
        makers=makers,
        end=data["end"],
        resident=resident,
        peak=peak,
        chunk_resident=chunk_resident,
        chunk_peak=chunk_peak,
        peak_at=peak_at,
        peak_maker=peak_maker,
        preparation=Preparation(tuple((size, count) for size, count in small_change), *rest),
        untouched=data["untouched"],
    )


def _forecast_from_data(data: Mapping[str, Any]) -> Forecast:
    low, high = data["plain"]
    fixed, per_sample = data["law"]
    return Forecast(
        timeline_from_data(data["timeline"]),
        low,
        high,
        fixed,
        per_sample,
        data["budget"],
        data["largest_batch"],
        tuple(Note(*row) for row in data["notes"]),
        dict(data["versions"]),
        data["compiler"],
    )
