"""What would have saved a run: its step captured, and simulated under each change. Trains nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lowtide.diagnose import Finding
from lowtide.diagnose.aftermath import ID as OUT_OF_MEMORY
from lowtide.diagnose.aftermath import Remedy, from_recording, leak_remedies, with_remedies
from lowtide.errors import Infeasible, LowtideError
from lowtide.plan import make_plan
from lowtide.program import Program
from lowtide.record import Recording
from lowtide.simulate import simulate
from lowtide.simulate.bfc import OutOfMemory

SECONDS = 10.0
"""For the search of a plan."""
TIGHT = 0.6
"""The part of its peak that a step is planned for when there is no limit to meet."""


def simulated_remedies(
    target: str, arguments: Sequence[str], limit: int | None, rows: int | None = None
) -> list[Remedy]:
    """A smaller batch, recomputation, mixed precision: what each saves; empty when no step can be captured.

    `rows` is the batch that memory ran out with, where that is not the first step's.
    """
    from lowtide.tf.child import capture_target

    try:
        program = capture_target(target, arguments).program
    except LowtideError:
        return []
    if rows is not None and program.scales and rows > program.batch:
        program = replace(program, batch=rows)
    return remedies_of(program, limit)


def _rows(recording: Recording) -> int | None:
    """The first dimension of what was refused."""
    refusal = recording.outcome.refusal
    first = refusal.shape.strip("()[] ").partition(",")[0] if refusal else ""
    return int(first) if first.isdigit() else None


def with_simulated_remedies(
    findings: Sequence[Finding], recording: Recording, target: str, arguments: Sequence[str]
) -> list[Finding]:
    """The findings; that of a run which ran out of memory with what the simulator says would have saved it."""
    if not any(finding.id == OUT_OF_MEMORY for finding in findings):
        return list(findings)
    limit = next((device.limit_bytes for device in recording.run.machine.devices if device.limit_bytes), None)
    remedies = simulated_remedies(target, arguments, limit, _rows(recording)) or from_recording(recording)
    leaks = leak_remedies(findings)
    return [
        with_remedies(finding, recording, [*leaks, *remedies]) if finding.id == OUT_OF_MEMORY else finding
        for finding in findings
    ]  # fmt: skip


def remedies_of(program: Program, limit: int | None) -> list[Remedy]:
    """The same for a step that is at hand. `limit` is what it has to fit in, where that is known."""
    before = _peak(program, program.batch)
    if before is None:
        return []
    found = (_batch(program, before, limit), _recompute(program, before, limit), _half(program, before))
    return [remedy for remedy in found if remedy is not None]


def _peak(program: Program, batch: int) -> int | None:
    try:
        return simulate(program, batch).chunk_peak
    except OutOfMemory:
        return None


def _batch(program: Program, before: int, limit: int | None) -> Remedy | None:
    """The largest halving of the batch that fits; half of it where nothing is said of a limit."""
    if not program.scales or program.batch < 2:
        return None
    batch = program.batch // 2
    peak = _peak(program, batch)
    while limit is not None and peak is not None and peak > limit and batch > 1:
        batch //= 2
        peak = _peak(program, batch)
    return None if peak is None else Remedy(f"batch {batch} instead of {program.batch}", before - peak)


def _recompute(program: Program, before: int, limit: int | None) -> Remedy | None:
    budget = min(limit or before, round(before * TIGHT))
    try:
        plan = make_plan(program, budget, seconds=SECONDS)
    except Infeasible as error:
        if error.smallest_bytes >= before:
            return None
        peak = error.smallest_bytes
    except LowtideError:
        return None
    else:
        peak = plan.peak
    return Remedy(f"recomputation (`lowtide fit --budget {-(-peak >> 20)}MiB`)", before - peak)


def _half(program: Program, before: int) -> Remedy | None:
    """What grows with the batch in 16 bits, weights and their gradients as they are."""
    peak = _peak(_in_half(program), program.batch)
    return None if peak is None or peak >= before else Remedy("mixed precision (16-bit activations)", before - peak)


def _in_half(program: Program) -> Program:
    values = tuple(
        replace(value, dtype="bfloat16")
        if value.dtype == "float32" and value.shape is not None and any(dim.per_sample for dim in value.shape)
        else value
        for value in program.values
    )
    return replace(program, values=values, functions=tuple(_in_half(body) for body in program.functions))
