"""The oracles of a plan, on TensorFlow itself: the same bits as the step without a plan, the real peak, the real time.

Op determinism has to be on; otherwise a step is not even equal to itself.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lowtide.plan import Plan
from lowtide.program import Program
from lowtide.tf import profile
from lowtide.tf.capture import Step
from lowtide.tf.fit import program_as_it_lies
from lowtide.tf.rewrite import as_function, ordered_graph, planned_graph
from lowtide.tf.state import State
from lowtide.tf.trace import flat_tensors

STEPS = 3
Call = Callable[[], Any]


@dataclass(frozen=True)
class Run:
    """What some steps returned, and what they left in the variables, to the bit."""

    outputs: list[list[bytes]]
    state: list[bytes]
    peaks: list[int]


class Subject:
    """A captured step and a batch to run it on, always from the same start."""

    def __init__(self, step: Step, data: Any) -> None:
        self.step, self.arguments = step, flat_tensors(data)
        self._state = State(step)
        self._start = self._state.read()

    def from_start(self) -> Program:
        """Put every variable back, and give the step's Program with the allocator as it is then."""
        self._state.write(self._start)
        return program_as_it_lies(self.step)

    def run(self, call: Callable[..., list[Any]], steps: int = STEPS) -> Run:
        """What some steps from here on come to."""
        outputs, peaks = [], []
        for _ in range(steps):
            profile.reset_peak()
            results = call(*self.arguments)
            peaks.append(profile.device_bytes()["peak"])
            outputs.append([result.numpy().tobytes() for result in results])
            del results
        return Run(outputs, [value.tobytes() for value in self._state.read()], peaks)

    @cached_property
    def reference(self) -> Run:
        """The captured step as it was traced: in order, nothing twice, nothing early."""
        self.from_start()
        run = self.run(as_function(self.step, ordered_graph(self.step.graph_def)))
        moved = [a != b.tobytes() for a, b in zip(run.state, self._start, strict=True)]
        if not any(moved):
            raise AssertionError("the step changes no variable: comparing what it leaves proves nothing")
        return run

    def planned(self, plan: Plan) -> Callable[..., list[Any]]:
        return as_function(self.step, planned_graph(self.step.graph_def, plan), plan.timeline.preparation)

    def prove(self, plan: Plan) -> dict[str, Any]:
        """One row of evidence for a plan of `from_start()`. `broken` names what does not hold; empty when all does."""
        found = self.run(self.planned(plan))
        expected = self.reference
        row = {
            "budget_bytes": plan.budget,
            "predicted_bytes": plan.peak,
            "measured_bytes": max(found.peaks),
            "predicted_slowdown": plan.slowdown,
            "gap": plan.gap,
            "recomputed": len(plan.schedule) - len(plan.order),
            "same_state": found.state == expected.state,
            "same_outputs": found.outputs == expected.outputs,
        }
        return {**row, "broken": broken(row)}


def broken(row: Mapping[str, Any], within: float = 0.02) -> list[str]:
    checks = (
        ("variables differ", row["same_state"]),
        ("outputs differ", row["same_outputs"]),
        ("over budget", row["measured_bytes"] <= row["budget_bytes"]),
        (f"peak not within {within:.0%}", abs(row["predicted_bytes"] / row["measured_bytes"] - 1) <= within),
    )
    return [name for name, good in checks if not good]


def time_ratios(plain: Call, others: Mapping[str, Call], rounds: int) -> dict[str, float]:
    """Time of each call over that of `plain`: medians of ratios within a round, so that a busy machine cancels out."""
    for call in (plain, *others.values()):
        call()
    ratios: dict[str, list[float]] = {name: [] for name in others}
    for _ in range(rounds):
        base = _seconds(plain)
        for name, call in others.items():
            ratios[name].append(_seconds(call) / base)
    return {name: statistics.median(found) for name, found in ratios.items()}


def _seconds(call: Call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
