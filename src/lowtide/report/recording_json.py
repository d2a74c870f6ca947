"""A Recording for programs: the `--json` object. Computes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from lowtide.program import Source
from lowtide.record import Detail, Outcome, Recording
from lowtide.record.extremes import fullest_stages, line_text
from lowtide.record.views import (
    by_category,
    by_layer,
    by_line,
    by_mode,
    device_peak,
    fullest_detail,
    growth,
    host_peak,
    host_split_at_peak,
    main_kind,
    main_steps,
    reserve_unused,
)

MOST_TENSORS = 50


def recording_json(recording: Recording, findings: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Its keys are a contract: added to, never renamed. Bytes are integers, and their keys end in `_bytes`."""
    peak, host = device_peak(recording), host_peak(recording)
    detail = peak.detail if peak and peak.detail else fullest_detail(recording)
    split = host_split_at_peak(recording)
    run, taken = recording.run, reserve_unused(recording)
    return {
        "script": run.script,
        "arguments": list(run.arguments),
        "outcome": _outcome(recording.outcome),
        "steps": sum(step.repeats for _, step in main_steps(recording)),
        "step_kind": main_kind(recording),
        "device_peak_bytes": peak.bytes if peak else None,
        "device_peak_seconds": peak.time if peak else None,
        "device_peak_step": peak.step if peak else None,
        "reserved_bytes": taken[0] if taken else None,
        "reserved_unused_bytes": taken[1] if taken else None,
        "host_peak_bytes": host.rss_bytes if host else None,
        "host_peak_seconds": host.time if host else None,
        "device_growth_per_step_bytes": _growth(recording, "device_bytes"),
        "host_growth_per_step_bytes": _growth(recording, "rss_bytes"),
        "detail": _detail(recording, detail) if detail else None,
        "host": dict(split.parts) if split else None,
        "stages": _stages(recording),
        "graphs": {
            "traces": len(recording.traces),
            "graph_bytes": sum(trace.graph_bytes for trace in recording.traces),
            "constant_bytes": sum(trace.constant_bytes for trace in recording.traces),
        },
        "findings": [dict(finding) for finding in findings],
        "machine": _machine(recording),
        "versions": dict(run.versions),
        "environment": dict(run.environment),
        "notes": list(recording.notes),
    }


def _growth(recording: Recording, field: str) -> int | None:
    found = growth(recording, lambda step: getattr(step, field))
    return round(found.bytes_per_step) if found else None


def _where(source: Source | None) -> dict[str, Any]:
    return {"file": source.file if source else None, "line": source.line if source else None}


def _outcome(outcome: Outcome) -> dict[str, Any]:
    refusal = outcome.refusal
    return {
        "how": outcome.how,
        "seconds": outcome.seconds,
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "exception": outcome.exception,
        "message": outcome.message,
        "out_of_memory": outcome.out_of_memory,
        "why": outcome.why,
        **_where(outcome.source),
        "refused": refusal
        and {
            "requested_bytes": refusal.requested_bytes,
            "shape": refusal.shape,
            "dtype": refusal.dtype,
            "op": refusal.op,
            "device": refusal.device,
            **_where(refusal.source),
        },
    }


def _detail(recording: Recording, detail: Detail) -> dict[str, Any]:
    """The step recorded in full that tells what the peak is made of."""
    at = None if detail.peak_site is None else detail.sites[detail.peak_site]
    largest = sorted(detail.at_peak, key=lambda a: -a.chunk_bytes)[:MOST_TENSORS]
    return {
        "step": detail.step,
        "reason": detail.reason,
        "peak_bytes": detail.peak_bytes,
        "requested_peak_bytes": detail.peak_requested_bytes,
        "before_bytes": detail.begin_bytes,
        "after_bytes": detail.end_bytes,
        "at": at and {"op": at.op, "kind": at.kind, "layer": at.layer, **_where(at.source)},
        "categories": by_category(detail),
        "modes": by_mode(detail),
        "layers": [{"layer": name, "size_bytes": size} for name, size in by_layer(detail).items()],
        "lines": [
            {**_where(source), "code": line_text(recording, source), "size_bytes": size}
            for source, size in by_line(detail).items()
        ],
        "tensors": [
            {
                "size_bytes": a.chunk_bytes,
                "requested_bytes": a.requested_bytes,
                "category": a.category,
                "op": detail.sites[a.site].op,
                "kind": detail.sites[a.site].kind,
                "layer": detail.sites[a.site].layer,
                "shape": a.shape,
                "dtype": a.dtype,
                **_where(detail.sites[a.site].source),
            }
            for a in largest
        ],
    }


def _stages(recording: Recording) -> list[dict[str, Any]]:
    return [
        {
            "pipeline": stage.pipeline,
            "name": stage.name,
            **_where(stage.source),
            "buffered_bytes": stage.buffered_bytes,
            "buffered_elements": stage.buffered_elements,
        }
        for stage in fullest_stages(recording)
    ]


def _machine(recording: Recording) -> dict[str, Any]:
    machine = asdict(recording.run.machine)
    machine["devices"] = [device._asdict() for device in recording.run.machine.devices]
    return machine
