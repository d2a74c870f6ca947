"""A model or a function trains within a budget: captured, planned, and its step replaced by the planned one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from lowtide.errors import BadUse
from lowtide.plan import Plan
from lowtide.plan.aside import make_plan_aside
from lowtide.program import Program
from lowtide.tf import compat, profile
from lowtide.tf.capture import Step
from lowtide.tf.hooks import iterated
from lowtide.tf.rewrite import as_function, planned_graph
from lowtide.tf.trace import Seen, batch_of, capture_function, capture_model, flat_tensors

MakePlan = Callable[[Program, int], Plan]
"""(the step, a batch) -> its plan."""


class PlannedStep:
    """A captured step that runs as planned. A larger batch than any before is planned anew before it runs."""

    def __init__(self, step: Step, make: MakePlan, batch: int) -> None:
        program = replace(step.program, chunks=profile.chunks())
        self._step = replace(step, program=program)
        self._make = make
        self.plan = self._planned(batch)

    def _planned(self, batch: int) -> Plan:
        plan = self._make(self._step.program, batch)
        graph_def = planned_graph(self._step.graph_def, plan)
        self._call = as_function(self._step, graph_def, plan.timeline.preparation)
        self._batch = batch
        return plan

    def __call__(self, data: Any) -> Any:
        tensors = flat_tensors(data)
        if len(tensors) != len(self._step.arguments):
            raise BadUse(
                f"the step was planned for {len(self._step.arguments)} tensors and received {len(tensors)}; "
                "call lowtide.release(model) and plan again for this data"
            )
        batch = batch_of(data) or self._batch
        if batch > self._batch:
            self.plan = self._planned(batch)
        return self._step.pack(self._call(*tensors))


def install(model: Any, step: PlannedStep) -> None:
    """`fit` and `train_on_batch` call the planned step from here on, until `release` or another `compile`."""
    model.train_function = iterated(model, step)


def release(model: Any) -> None:
    """The model trains as TensorFlow would have it again."""
    model.train_function = None


def planned_model(model: Any, data: Any, make: MakePlan, batch: int, seen: Seen | None = None) -> PlannedStep:
    if compat.replicas(model) > 1:
        raise BadUse("the model is distributed over several devices; a plan is for one: build it without a strategy")
    return PlannedStep(capture_model(model, data, seen), make, batch)


def planned_function(
    function: Any, arguments: Sequence[Any], options: Mapping[str, Any], make: MakePlan, seen: Seen | None = None
) -> PlannedStep:
    step = capture_function(function, arguments, options, seen)
    return PlannedStep(step, make, batch_of((arguments, options)) or 1)


def budgeted_function(python_function: Callable[..., Any], budget: int, seconds: float) -> Callable[..., Any]:
    """`tf.function`, planned at its first call for the arguments it is given there."""
    function = tf.function(python_function)
    planned: list[PlannedStep] = []

    def call(*arguments: Any, **options: Any) -> Any:
        if not planned:
            make = lambda program, batch: make_plan_aside(program, budget, batch, seconds)  # noqa: E731
            planned.append(planned_function(function, arguments, options, make))
        return planned[0]((arguments, options))

    return call
