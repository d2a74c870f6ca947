"""One model, trained with and without a plan, each time in a process of its own.

`python -m benchmarks.fit_child NAME BATCH` answers one JSON line for each on its standard input:

    {"do": "reference"}             as captured, no limit: its bits, and what plain TensorFlow needs
    {"do": "order"}                 what a fixed order alone costs, with all the bytes there are
    {"do": "planned", "mib": 120}   planned by `lowtide.tf.fit`, trained on an allocator that has that and no more
    {"do": "plain", "mib": 120}     TensorFlow's own step on the same allocator

TensorFlow makes its CPU allocator once a process. So this process imports TensorFlow without touching a device, and
forks for each request.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from benchmarks.predict_child import as_traced, peaks_of, plain_call
from benchmarks.proof import STEPS, Run, Subject, time_ratios
from benchmarks.zoo import ENTRIES, Workload
from lowtide.errors import Infeasible
from lowtide.plan.aside import make_plan_aside, planning
from lowtide.tf import compat, profile
from lowtide.tf.capture import Step
from lowtide.tf.fit import PlannedStep, planned_function, planned_model, settled
from lowtide.tf.trace import flat_tensors

TINY = 1 << 20
ROUNDS = 41


def built(name: str, batch: int) -> Workload:
    """The same model in every process, to the bit."""
    tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(0)
    return next(e for e in ENTRIES if e.name == name and e.batch == batch).build(batch)


def reference(name: str, batch: int, seconds: float) -> dict[str, Any]:
    subject, plain = subject_and_plain(name, batch)
    answer = {
        "ops": len(subject.step.program.ops),
        "versions": dict(subject.step.program.versions),
        "unknown": [f"{note.treatment}: {note.what}" for note in subject.step.program.notes],
        **evidence(subject.step, subject.reference),
        "plain_bytes": max(peaks_of(plain)),
        "resident_bytes": profile.device_bytes()["current"],
    }
    try:
        make_plan_aside(subject.from_start(), TINY, batch, seconds)
    except Infeasible as refusal:
        answer["smallest_bytes"] = refusal.smallest_bytes
    return answer


def order(name: str, batch: int, seconds: float) -> dict[str, Any]:
    subject, plain = subject_and_plain(name, batch)
    enough = 2 * max(peaks_of(plain))
    ordered = subject.planned(make_plan_aside(subject.from_start(), enough, batch, seconds))
    return {"order_time": time_ratios(plain, {"order": lambda: ordered(*subject.arguments)}, ROUNDS)["order"]}


def subject_and_plain(name: str, batch: int) -> tuple[Subject, Callable[[], Any]]:
    """The step as captured, and TensorFlow's own."""
    workload = built(name, batch)
    step = settled(as_traced(workload), flat_tensors(workload.data), batch)
    return Subject(step, workload.data), plain_call(workload)


def evidence(step: Step, run: Run) -> dict[str, Any]:
    """What a run left, short enough to compare between processes, and the graph it is evidence of."""
    graph = hashlib.sha256()
    for part in (*step.graph_def.node, *sorted(step.graph_def.library.function, key=lambda f: str(f.signature.name))):
        graph.update(part.SerializeToString(deterministic=True))
    return {
        "graph": graph.hexdigest(),
        "state": [hashlib.sha256(value).hexdigest()[:16] for value in run.state],
        "outputs": [hashlib.sha256(b"".join(values)).hexdigest()[:16] for values in run.outputs],
    }


def planned(name: str, batch: int, mib: int, seconds: float) -> dict[str, Any]:
    compat.grow_allocator(mib << 20)
    workload = built(name, batch)
    try:
        step = fitted(workload, mib << 20, batch, seconds)
    except Infeasible as refusal:
        return {"infeasible": str(refusal), "smallest_bytes": refusal.smallest_bytes}
    (variant,) = step.variants
    subject = Subject(variant.step, workload.data)
    found = subject.run(variant.call)
    plan = step.plan
    return {
        "budget_bytes": plan.budget,
        "predicted_bytes": plan.peak,
        "measured_bytes": max(found.peaks),
        "predicted_slowdown": plan.slowdown,
        "gap": plan.gap,
        "recomputed": len(plan.schedule) - len(plan.order),
        **evidence(variant.step, found),
    }


def fitted(workload: Workload, budget: int, batch: int, seconds: float) -> PlannedStep:
    make = planning(budget, seconds)
    if workload.model is not None:
        return planned_model(workload.model, workload.data, make, batch)
    return planned_function(workload.step, workload.data, {}, make)


def plain(name: str, batch: int, mib: int, seconds: float) -> dict[str, Any]:
    compat.grow_allocator(mib << 20)
    call = plain_call(built(name, batch))
    try:
        for _ in range(STEPS):
            call()
    except tf.errors.OpError as error:
        return {"died": f"{type(error).__name__}: {error.message.splitlines()[0]}"}
    return {"survived": STEPS}


ANSWERS: dict[str, Callable[..., dict[str, Any]]] = {
    "reference": reference, "order": order, "planned": planned, "plain": plain,
}  # fmt: skip


def answer(name: str, batch: int, request: dict[str, Any]) -> None:
    """In a process of its own: an allocator of its own."""
    do, mib = request.pop("do"), request.get("mib")
    if mib is not None:
        os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = str(mib)
    print(json.dumps(ANSWERS[do](name, batch, **request)), flush=True)


def serve(name: str, batch: int) -> None:
    for line in sys.stdin:
        if (child := os.fork()) == 0:
            answer(name, batch, json.loads(line))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            print(json.dumps({"died": signal.Signals(os.WTERMSIG(status)).name}), flush=True)
        elif status:
            print(json.dumps({"error": "see standard error"}), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
