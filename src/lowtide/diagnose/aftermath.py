"""After an OOM, an abort or a kill: what was asked for, by which line, what filled memory, what would have helped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lowtide.diagnose.code import read_code
from lowtide.diagnose.evidence import slow_samples
from lowtide.diagnose.types import PROBLEM, Finding
from lowtide.program import Source
from lowtide.record import Recording
from lowtide.record.views import by_category, by_line, fullest_detail, host_peak, inside
from lowtide.units import format_size

ID = "out-of-memory"
MOST = 3
CRASHES = ("SIGSEGV", "SIGABRT", "SIGBUS")
NEARLY = 0.75


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change, and what it saves at the peak: simulated, or computed from the recording."""

    change: str
    saving_bytes: int


def out_of_memory(recording: Recording) -> Iterator[Finding]:
    """The run ended for want of memory, or was refused some and went on."""
    asked = recording.outcome.refusal is not None
    if not recording.outcome.out_of_memory and not asked and not _at_the_limit(recording):
        return
    source = _line(recording)
    finding = Finding(
        ID, PROBLEM, _title(recording), _in_use(recording), source, read_code(recording).text(source), "", None,
        _filled(recording), None,
    )  # fmt: skip
    yield with_remedies(finding, from_recording(recording))


def _at_the_limit(recording: Recording) -> bool:
    """A crash without a word, with the device nearly full: kernels that get no memory may crash, not say so."""
    limit = _limit(recording)
    if recording.outcome.signal not in CRASHES or limit is None:
        return False
    return max((s.reserved_bytes or 0 for s in inside(recording)), default=0) > NEARLY * limit


def _limit(recording: Recording) -> int | None:
    return next((device.limit_bytes for device in recording.run.machine.devices if device.limit_bytes), None)


def with_remedies(finding: Finding, remedies: Sequence[Remedy]) -> Finding:
    """The finding with the changes that save most."""
    best = sorted((r for r in remedies if r.saving_bytes > 0), key=lambda r: -r.saving_bytes)[:MOST]
    if not best:
        return replace(finding, fix="find what fills the memory in the lines above, and make less of it")
    words = "; ".join(f"{r.change} saves {format_size(r.saving_bytes)}" for r in best)
    return replace(finding, fix=words, saving_bytes=best[0].saving_bytes)


def _title(recording: Recording) -> str:
    outcome, refusal = recording.outcome, recording.outcome.refusal
    limit = _limit(recording)
    on_device = refusal is not None or _at_the_limit(recording)
    of = f" of {format_size(limit)}" if limit and on_device else ""
    used = f"{format_size(_in_use(recording))}{of} were in use"
    if refusal is None:
        how = f"was ended by {outcome.signal}" if outcome.signal else f"failed with {outcome.exception or 'no word'}"
        why = outcome.why or ("the device was nearly full" if on_device else "by its message")
        return f"the run {how} for want of memory ({why}); {used}"
    asked = format_size(refusal.requested_bytes) if refusal.requested_bytes else "an unknown size"
    said = " ".join(filter(None, (refusal.dtype, refusal.shape, refusal.op)))
    what = f" ({said})" if said else ""
    return f"{asked}{what} was asked for and refused while {used}"


def _in_use(recording: Recording) -> int:
    """On the device when it was refused; in the process when that was killed."""
    if recording.outcome.refusal is not None or _at_the_limit(recording):
        died = recording.outcome.how not in ("done", "exit")
        last = inside(recording)[-20:] if died else inside(recording)
        sizes = [max(s.device_bytes or 0, s.device_peak_bytes or 0) for s in last]
        sizes += [step.device_peak_bytes or 0 for step in recording.steps[-1:]]
        sizes += [detail.peak_bytes for detail in recording.details[-1:]]
        if any(sizes):
            return max(sizes)
    host = host_peak(recording)
    return (host.rss_bytes or 0) if host else 0


def _line(recording: Recording) -> Source | None:
    refusal = recording.outcome.refusal
    lines = [sample.source for sample in inside(recording) if sample.source is not None]
    return (refusal.source if refusal else None) or recording.outcome.source or (lines[-1] if lines else None)


def _filled(recording: Recording) -> str:
    """What the memory was full of: categories of the fullest step, its largest lines; else the parts of RSS."""
    detail = fullest_detail(recording)
    tells = detail is not None and detail.peak_bytes >= NEARLY * _in_use(recording)
    if detail is not None and tells and recording.outcome.refusal is not None:
        parts = sorted(by_category(detail).items(), key=lambda item: -item[1])[:3]
        lines = [(line, size) for line, size in by_line(detail).items() if line is not None][:2]
        words = [f"{format_size(size)} of {name}" for name, size in parts if size]
        words += [f"{format_size(size)} from {Path(line.file).name}:{line.line}" for line, size in lines]
        return ", ".join(words)
    held = _held(recording)
    if recording.outcome.refusal is not None and held:
        return held
    if recording.outcome.refusal is not None or _at_the_limit(recording):
        kept = [s.eager_bytes for s in slow_samples(recording) if s.eager_bytes is not None]
        data = min(kept[-1] if kept else 0, _in_use(recording))
        own = _in_use(recording) - data
        return f"{format_size(data)} of tensors the script holds, {format_size(own)} of the step's own"
    if recording.splits:
        split = max(recording.splits, key=lambda split: split.rss_bytes)
        parts = sorted(split.parts.items(), key=lambda item: -item[1])[:3]
        return ", ".join(f"{format_size(size)} of {name}" for name, size in parts if size)
    return ""


def _held(recording: Recording) -> str:
    """The largest things that Python knew of when somebody last looked: a look is taken at the refusal."""
    last = max((row.time for row in recording.census), default=0.0)
    rows = sorted((r for r in recording.census if r.time == last and r.bytes), key=lambda row: -row.bytes)[:MOST]
    names = [f"{format_size(r.bytes)} of {r.kind}s {r.example}" + (f" in {r.holder}" if r.holder else "") for r in rows]
    return ", ".join(names)


def from_recording(recording: Recording) -> list[Remedy]:
    """What the recording itself tells: no step could be captured, or nobody asked."""
    found = []
    detail = fullest_detail(recording)
    if detail is not None:
        parts = by_category(detail)
        scaling = parts["activations"] + parts["temporaries"] + parts["inputs"]
        found = [
            Remedy("half the batch", scaling // 2),
            Remedy("activations in 16 bits (mixed precision)", parts["activations"] // 2),
            Remedy("an optimizer without slots", parts["optimizer state"]),
        ]
    waiting = max((s.data_bytes or 0 for s in slow_samples(recording)), default=0)
    kept = max((s.eager_bytes or 0 for s in slow_samples(recording)), default=0)
    return [*found, Remedy("smaller tf.data buffers", waiting), Remedy("fewer eager tensors kept", kept)]
