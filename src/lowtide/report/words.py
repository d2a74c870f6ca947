"""Words that several reports share."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from lowtide.record import Device, Outcome, Recording, Run
from lowtide.record.views import can_be_judged, step_count, step_spans
from lowtide.report.contents import counted
from lowtide.units import format_size

MEANING = {
    "parameters": "weights and statistics",
    "optimizer state": "slots and counters",
    "gradients": "of weights not yet updated",
    "activations": "kept for the backward pass",
    "temporaries": "come and go in the step",
    "inputs": "the batch, data on the device",
    "constants": "baked into graphs",
    "other": "tensors your code holds, and the rest",
}
"""What each category holds."""


def outcome_words(outcome: Outcome) -> str:
    """How the run ended, as half a sentence."""
    said = {
        "done": "it ended by itself",
        "exit": f"it exited with {outcome.exit_code}",
        "exception": f"it failed with {outcome.exception}",
        "signal": f"it was ended by {outcome.signal}",
    }.get(outcome.how, "how it ended is not known")
    return f"{said}, out of memory" if outcome.out_of_memory else said


def unjudged_words(recording: Recording) -> str:
    """What it does not mean that nothing was found; "" where it means that there is nothing."""
    seen = "one step was seen" if step_count(recording) else "no step was seen"
    if can_be_judged(recording):
        return "" if step_count(recording) > 1 else f"growth cannot be judged: it is told from step to step, and {seen}"
    outcome = recording.outcome
    ended = "the recording ends" if outcome.how == "unknown" else outcome_words(outcome)
    return f"nothing can be judged: {ended} before it had repeated anything ({seen})"


_KINDS = {
    "fit": ("training step", " (fit)"),
    "function": ("training step", " (tf.function)"),
    "session": ("training step", " (Session.run)"),
    "update": ("training step", " (eager)"),
    "gradient": ("gradient", " (eager)"),
    "evaluate": ("evaluation step", ""),
    "predict": ("prediction step", ""),
    "call": ("call", ""),
    "run": ("run", " (Session)"),
    "next": ("dataset element", ""),
}


def counted_steps(number: int, kind: str) -> str:
    """"1 training step (fit)", "3 calls"."""
    word, how = _KINDS[kind]
    return counted(number, word) + how


def again_words(run: Run) -> str:
    """The target and its arguments as they were given, to be typed again."""
    module, _, name = run.script.partition("-m ")
    target = ["-m", name] if name and not module else [run.script]
    return shlex.join([*target, *run.arguments])


def is_module(run: Run) -> bool:
    return run.script.startswith("-m ")


def step_names(recording: Recording) -> list[str]:
    """A name for each of `Recording.steps`: "step 3", "steps 3 to 9" of the run's own, else what it was."""
    names = [f"{step.kind} {step.name}".rstrip() for step in recording.steps]
    for number, (first, last) in step_spans(recording).items():
        names[number] = f"step {first:,}" if first == last else f"steps {first:,} to {last:,}"
    return names


def step_words(recording: Recording, number: int | None) -> str:
    """Where in the run something was."""
    if number is None or not 0 <= number < len(recording.steps):
        return "outside any step"
    return f"in {step_names(recording)[number]}"


def device_names(devices: Iterable[Device]) -> list[str]:
    return [
        f"{device.name}, allocator {device.allocator}"
        + (f", limited to {format_size(device.limit_bytes)}" if device.limit_bytes else "")
        for device in devices
    ]
