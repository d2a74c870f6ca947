"""One model, predicted and then really run, in a process of its own.

`python -m benchmarks.predict_child NAME BATCH MODE`

MODE is `fixed` (both predictions, and Lowtide's order measured) or `plain` (TensorFlow's own order measured, in a
process that does nothing else). Prints one JSON object as its last line.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from typing import Any

import tensorflow as tf

from benchmarks.zoo import ENTRIES, Workload
from lowtide.simulate import forecast, simulate, tidy_order
from lowtide.simulate.plain import MEASURED_STEPS, WARM_UP_STEPS
from lowtide.simulate.step import MOST_STEPS
from lowtide.tf import profile
from lowtide.tf.capture import Step, versions
from lowtide.tf.fit import program_as_it_lies
from lowtide.tf.rehearse import rehearsed
from lowtide.tf.rewrite import as_function, ordered_graph
from lowtide.tf.trace import capture_function, capture_model, flat_tensors, step_function

WARM_UP, MEASURED = 2, 5
WATCHED = 4
"""Steps whose every allocation is looked at: a branch is taken in some and not in others."""


def main(name: str, batch: int, mode: str) -> None:
    entry = next(e for e in ENTRIES if e.name == name and e.batch == batch)
    workload = entry.build(batch)
    build_optimizer(workload)
    answer = {"fixed": fixed, "plain": plain}[mode](workload, batch)
    print(json.dumps({"name": name, "batch": batch, "mode": mode, **answer}))


def build_optimizer(workload: Workload) -> None:
    """As `fit` does before it traces the step: slots that are made inside the step lie elsewhere."""
    optimizer = getattr(workload.model, "optimizer", None)
    if optimizer is not None and not optimizer.built:
        optimizer.build(workload.model.trainable_variables)


def captured(workload: Workload) -> Step:
    """The step, rehearsed where `lowtide predict` would: on the model's own variables, which it changes."""
    step = as_traced(workload)
    return replace(step, program=rehearsed(step, workload.data))


def as_traced(workload: Workload) -> Step:
    if workload.model is not None:
        return capture_model(workload.model, workload.data)
    return capture_function(workload.step, workload.data, {})


def fixed(workload: Workload, batch: int) -> dict[str, Any]:
    step, arguments = captured(workload), flat_tensors(workload.data)
    started = time.process_time()
    predicted = forecast(step.program, batch)
    seconds = time.process_time() - started
    program = program_as_it_lies(step)
    order = tidy_order(program, batch)
    timeline = simulate(program, batch, order)
    call = as_function(step, ordered_graph(step.graph_def, order), timeline.preparation)
    run = lambda: call(*arguments)  # noqa: E731
    peaks = peaks_of(run, 0, MOST_STEPS)
    requested = max(profile.requested_peak(profile.memory_events(run)) for _ in range(WATCHED))
    before = profile.device_bytes()["current"]
    return {
        "ops": len(program.ops),
        "own_seconds": seconds,
        "versions": dict(program.versions),
        "low_bytes": predicted.plain_low,
        "high_bytes": predicted.plain_high,
        "predicted_peak_bytes": timeline.chunk_peak,
        "measured_peak_bytes": max(peaks),
        "predicted_requested_step_bytes": timeline.peak - timeline.resident,
        "measured_requested_step_bytes": requested,
        "predicted_resident_bytes": timeline.chunk_resident,
        "measured_resident_bytes": before,
        "unknown": [f"{note.treatment}: {note.what}" for note in program.notes],
    }


def plain(workload: Workload, batch: int) -> dict[str, Any]:
    peaks = peaks_of(plain_call(workload), WARM_UP_STEPS, MEASURED_STEPS)
    return {"peaks_bytes": peaks, "versions": versions()}


def plain_call(workload: Workload) -> Any:
    """The step as TensorFlow runs it."""
    if workload.model is not None:
        return opened(step_function(workload.model), workload.data)
    return lambda: workload.step(*workload.data)


def opened(step: Any, data: Any) -> Any:
    """The call that Keras makes: traced with an open batch, given a batch."""
    concrete = step.get_concrete_function(
        tf.nest.map_structure(
            lambda t: None if t is None else tf.TensorSpec([None, *t.shape[1:]] if t.shape.rank else [], t.dtype), data
        )
    )
    arguments = [leaf for leaf in tf.nest.flatten(data, expand_composites=True) if leaf is not None]
    return lambda: concrete(*arguments)


def peaks_of(run: Any, warm_up: int = WARM_UP, steps: int = MEASURED) -> list[int]:
    """The allocator's peak in each of some steps. The fixed order is measured from its first call on, where the
    allocator is prepared: the prediction holds for that too; and for as many steps as the simulator plays at most."""
    for _ in range(warm_up):
        run()
    peaks = []
    for _ in range(steps):
        profile.reset_peak()
        run()
        peaks.append(profile.device_bytes()["peak"])
    return peaks


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
