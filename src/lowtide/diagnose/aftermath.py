"""After an OOM, an abort or a kill: what was asked for, by which line, what filled memory, what would have helped."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lowtide.diagnose.code import read_code
from lowtide.diagnose.evidence import only_put
from lowtide.diagnose.trends import slow_samples
from lowtide.diagnose.types import PROBLEM, Finding
from lowtide.program import Source
from lowtide.record import Recording, Sample
from lowtide.record.views import by_category, by_line, fullest_detail, host_peak, inside
from lowtide.units import format_size

ID = "out-of-memory"
MOST = 3
CRASHES = ("SIGSEGV", "SIGABRT", "SIGBUS")
KILL = "SIGKILL"
NEARLY = 0.75
BEFORE = 0.3
"""Seconds before a refusal whose samples tell how full the device was."""
FILLED = 0.25
"""What has this part of what was in use is what filled it."""


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
    yield finding


def explained(findings: Sequence[Finding], recording: Recording) -> list[Finding]:
    """The findings; that of the run's end with the leaks among the others: what ending each saves, and whose line.

    A process that was killed was on any line. Where one of the leaks filled it, that is the line.
    """
    leaks = leak_remedies(findings)
    return [
        with_remedies(_blaming(finding, findings, recording), recording, [*leaks, *from_recording(recording)])
        if finding.id == ID else finding
        for finding in findings
    ]  # fmt: skip


def leak_remedies(findings: Sequence[Finding]) -> list[Remedy]:
    return [
        Remedy(f"ending {leak.id} at line {leak.source.line}", leak.saving_bytes)
        for leak in findings
        if _is_leak(leak) and leak.source and leak.saving_bytes
    ]


MADE_AGAIN = frozenset({
    "models-kept", "models-never-freed", "optimizer-made-again", "compiled-again", "iterators-kept",
    "sessions-left-open", "layers-made-again", "dataset-made-again", "variables-made-again", "closures-kept",
    "tapes-kept", "tape-spans-steps", "retrace-by-value", "retrace-by-shape", "function-made-again", "graph-grows",
    "device-growth", "host-growth",
})  # fmt: skip
"""Leaks also in runs without steps, where nothing can be said of a step."""


def _is_leak(finding: Finding) -> bool:
    return finding.severity == PROBLEM and (bool(finding.bytes_per_step) or finding.id in MADE_AGAIN)


def _blaming(finding: Finding, findings: Sequence[Finding], recording: Recording) -> Finding:
    leaks = [f for f in findings if _is_leak(f) and f.source is not None]
    largest = max(leaks, key=lambda leak: leak.bytes, default=None)
    if largest is None or recording.outcome.signal != KILL or largest.bytes < FILLED * finding.bytes:
        return finding
    return replace(finding, source=largest.source, code=largest.code)


def _at_the_limit(recording: Recording) -> bool:
    """A crash without a word, with the device nearly full: kernels that get no memory may crash, not say so."""
    limit = _limit(recording)
    if recording.outcome.signal not in CRASHES or limit is None:
        return False
    return max((s.reserved_bytes or 0 for s in inside(recording)), default=0) > NEARLY * limit


def _limit(recording: Recording) -> int | None:
    return next((device.limit_bytes for device in recording.run.machine.devices if device.limit_bytes), None)


def with_remedies(finding: Finding, recording: Recording, remedies: Sequence[Remedy]) -> Finding:
    """The finding with the changes that save most; where the request alone is more than there is, none of them does."""
    asked = recording.outcome.refusal.requested_bytes if recording.outcome.refusal else None
    there_is = _limit(recording) or recording.run.machine.memory_bytes
    if asked and asked > there_is:
        fix = f"what this line asks for is by itself more than the {format_size(there_is)} there are: make it smaller"
        return replace(finding, fix=f"{fix}, or in parts", saving_bytes=asked)
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
    after = "; the script went on" if _went_on(recording) else ""
    return f"{asked}{what} was asked for and refused while {used}{after}"


def _in_use(recording: Recording) -> int:
    """On the device when it was refused; in the process when that was killed."""
    if recording.outcome.refusal is not None or _at_the_limit(recording):
        went_on = _went_on(recording)
        sizes = [max(s.device_bytes or 0, s.device_peak_bytes or 0) for s in _around_refusal(recording)]
        sizes += [step.device_peak_bytes or 0 for step in recording.steps[-1:] if not went_on]
        sizes += [detail.peak_bytes for detail in recording.details[-1:] if not went_on]
        if any(sizes):
            return max(sizes)
    host = host_peak(recording)
    return (host.rss_bytes or 0) if host else 0


def _went_on(recording: Recording) -> bool:
    """Whether the script caught the error and went on."""
    return recording.outcome.refusal is not None and recording.outcome.how in ("done", "exit")


def _around_refusal(recording: Recording) -> Sequence[Sample]:
    """The last samples of a run that died; those just before what a script caught: one is taken then."""
    samples, refusal = inside(recording), recording.outcome.refusal
    if not _went_on(recording) or refusal is None:
        return samples[-20:]
    at = refusal.time
    return samples if at is None else [s for s in samples if at - BEFORE <= s.time <= at]


def _line(recording: Recording) -> Source | None:
    refusal = recording.outcome.refusal
    lines = [sample.source for sample in inside(recording) if sample.source is not None]
    known = (refusal.source if refusal else None) or recording.outcome.source
    if known is None and recording.outcome.signal == KILL and not recording.census:
        known = only_put(recording)  # nobody looked at what was alive: the one line that keeps anything, if there is
    return known or (lines[-1] if lines else None)


def _filled(recording: Recording) -> str:
    """What the memory was full of: categories of the fullest step, its largest lines; else the parts of RSS."""
    detail = fullest_detail(recording) if not _went_on(recording) else None
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
    if held and _known(recording) > FILLED * _in_use(recording):
        return held
    if recording.splits:
        split = max(recording.splits, key=lambda split: split.rss_bytes)
        parts = sorted(split.parts.items(), key=lambda item: -item[1])[:3]
        return ", ".join(f"{format_size(size)} of {name}" for name, size in parts if size)
    return ""


def _held(recording: Recording) -> str:
    """The largest things that Python knew of when somebody last looked: a look is taken at the refusal."""
    refusal = recording.outcome.refusal
    times = [row.time for row in recording.census]
    then = [time for time in times if refusal is not None and refusal.time is not None and time >= refusal.time]
    look = min(then) if then and _went_on(recording) else max(times, default=0.0)
    rows = sorted((r for r in recording.census if r.time == look and r.bytes), key=lambda row: -row.bytes)[:MOST]
    names = [f"{format_size(r.bytes)} of {r.kind}s {r.example}" + (f" in {r.holder}" if r.holder else "") for r in rows]
    return ", ".join(names)


def _known(recording: Recording) -> int:
    """Bytes of what Python knew of at the last look."""
    last = max((row.time for row in recording.census), default=0.0)
    return sum(row.bytes for row in recording.census if row.time == last)


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
