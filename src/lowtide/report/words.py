"""Words that several reports share."""

from __future__ import annotations

from collections.abc import Iterable

from lowtide.record import Device, Outcome, Recording
from lowtide.record.views import main_steps
from lowtide.units import format_size

MEANING = {
    "parameters": "weights and statistics",
    "optimizer state": "slots and counters",
    "gradients": "of weights not yet updated",
    "activations": "kept for the backward pass",
    "temporaries": "come and go in the step",
    "inputs": "the batch, data on the device",
    "constants": "baked into graphs",
    "other": "what nothing else accounts for",
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


def step_names(recording: Recording) -> list[str]:
    """A name for each of `Recording.steps`: "step 3" for the third of the run's own, else what it was."""
    names = [f"{step.kind} {step.name}".rstrip() for step in recording.steps]
    for place, (number, _) in enumerate(main_steps(recording), 1):
        names[number] = f"step {place}"
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
