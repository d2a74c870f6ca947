"""`lowtide run --verify`: the script again, with the change that a finding advises, and its peaks before and after."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from lowtide.diagnose import Finding
from lowtide.record import Recording
from lowtide.record.views import device_peak, host_peak, main_steps
from lowtide.runs import run_target

VARIABLE = "LOWTIDE_CHANGE"
"""Tells the watched process what to change."""

CHANGES = {
    "dataset-copied": "stream",
    "array-given-to-fit": "stream",
    "float64-data": "stream",
    "tape-records-unused": "watch",
    "activations-rule": "batch",
}
"""Findings whose change Lowtide can make by itself."""

WORDS = {
    "stream": "data read in pieces",
    "watch": "tapes that watch only what is differentiated",
    "batch": "half the batch",
    "recompute": "the step planned, with recomputation",
}


class Verified(NamedTuple):
    """Peaks in bytes without the change and with it; None where the device does not count, or the run failed."""

    finding: str
    change: str
    device_before: int | None
    device_after: int | None
    host_before: int | None
    host_after: int | None
    ended: str


def verify(
    recording: Recording, findings: Sequence[Finding], target: str, arguments: Sequence[str], module: bool
) -> Iterator[Verified]:
    """One run for each change that some finding advises and Lowtide can make."""
    done: set[str] = set()
    for finding in findings:
        change = CHANGES.get(finding.id)
        if change is not None and change not in done:
            done.add(change)
            yield _verified(recording, finding.id, change, target, arguments, module)
        if finding.id in ("activations-rule", "out-of-memory") and "recompute" not in done and not module:
            done.add("recompute")
            yield from _planned(recording, finding.id, target, arguments)


def _verified(
    before: Recording, finding: str, change: str, target: str, arguments: Sequence[str], module: bool
) -> Verified:
    with tempfile.TemporaryDirectory(prefix="lowtide-verify-") as folder, _asked_for(change):
        after = run_target(target, arguments, Path(folder) / "after.db", 1, "off", module).recording
    peaks = _device(before), _device(after), _host(before), _host(after)
    return Verified(finding, WORDS[change], *peaks, after.outcome.how)


def _planned(before: Recording, finding: str, target: str, arguments: Sequence[str]) -> Iterator[Verified]:
    """The script inside a budget that its plain step does not fit: the allocator itself refuses a byte more."""
    from lowtide.errors import LowtideError
    from lowtide.tf.child import fit_target

    peak = _device(before)
    if peak is None:
        return
    plans: list[dict[str, int]] = []
    try:
        code = fit_target(target, arguments, round(peak * 0.7), 20.0, plans.append)
    except LowtideError:
        return
    after = plans[0].get("peak_bytes") if plans else None
    host = _host(before)
    yield Verified(finding, WORDS["recompute"], peak, after, host, None, "done" if code == 0 else f"exit {code}")


def _device(recording: Recording) -> int | None:
    """The device's peak; of the steps after the first two, where there are such: a change may need them to settle."""
    found, main = device_peak(recording), main_steps(recording)
    if len(main) <= 2:
        return found.bytes if found else None
    kind = main[0][1].kind
    kinds = {kind, "gradient", "call"} if kind == "update" else {kind}
    later = recording.steps[main[1][0] + 1 :]
    return max((step.device_peak_bytes or 0 for step in later if step.kind in kinds), default=0) or None


def _host(recording: Recording) -> int | None:
    found = host_peak(recording)
    return found.rss_bytes if found else None


@contextmanager
def _asked_for(change: str) -> Iterator[None]:
    old = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = change
    try:
        yield
    finally:
        if old is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = old
