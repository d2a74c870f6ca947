"""How much time a plan costs, beside what people do by hand: one model, all ways in one process, turn by turn.

`python -m benchmarks.fit_times_child NAME BATCH SECONDS` prints one JSON object as its last line.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from typing import Any

import keras

from benchmarks.by_hand import by_hand, in_remat_scope
from benchmarks.predict_child import captured, opened, peaks_of, plain_call
from benchmarks.proof import Subject, time_ratios
from benchmarks.zoo import ENTRIES
from lowtide.errors import Infeasible
from lowtide.plan.aside import make_plan_aside
from lowtide.tf import profile
from lowtide.tf.trace import step_function

SHARES = {"a half": 1 / 2, "a third": 1 / 3}
ROUNDS = 5


def step_bytes(call: Callable[[], Any]) -> int:
    """What a step needs on top of what is there before it."""
    peaks = peaks_of(call)
    return max(peaks) - profile.device_bytes()["current"]


def said_by(error: Exception) -> str:
    """The line that says it: without colours, and without Keras's opening."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines()
    said = [line for line in lines if line.strip() and not line.startswith("Exception encountered")]
    return (said or lines or [""])[0][:200]


def main(name: str, batch: int, seconds: float) -> None:
    keras.utils.set_random_seed(0)
    entry = next(e for e in ENTRIES if e.name == name and e.batch == batch)
    workload = entry.build(batch)
    plain = plain_call(workload)
    needs = step_bytes(plain)
    subject = Subject(captured(workload), workload.data)
    calls: dict[str, Callable[[], Any]] = {}
    rows: dict[str, dict[str, Any]] = {}
    resident = profile.device_bytes()["current"]
    for label, share in {"order alone": 2.0, **SHARES}.items():
        try:
            plan = make_plan_aside(subject.from_start(), resident + int(share * needs), batch, seconds)
        except Infeasible as refusal:
            rows[label] = {"error": f"smallest reached: {(refusal.smallest_bytes - resident) / needs:.0%}"}
            continue
        rows[label] = {"predicted": plan.slowdown, "recomputed": len(plan.schedule) - len(plan.order)}
        run = subject.planned(plan)
        calls[label] = lambda run=run: run(*subject.arguments)  # type: ignore[misc]  # bound now
    others: dict[str, Callable[[], Any]] = {
        "recompute_grad by hand": lambda: by_hand(name, workload),
        "keras.RematScope": lambda: in_remat_scope(entry.build, batch),
    }
    for label, make in others.items():
        try:
            calls[label] = opened(step_function(make()), workload.data)
            calls[label]()
        except Exception as error:  # noqa: BLE001  # whatever another way of doing it raises is its row
            calls.pop(label, None)
            rows[label] = {"error": f"{type(error).__name__}: {said_by(error)}"}
    for label, call in calls.items():
        rows.setdefault(label, {})["bytes"] = step_bytes(call)
    for label, ratio in time_ratios(plain, calls, ROUNDS).items():
        rows[label]["time"] = ratio
    print(json.dumps({"name": name, "batch": batch, "plain_step_bytes": needs, "ways": rows}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
