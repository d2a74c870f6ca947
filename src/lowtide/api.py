"""Joins the rooms: what the package offers to Python, and what the commands call."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

import psutil

from lowtide.errors import BadUse
from lowtide.plan import Plan, make_plan, plan_curve, plan_facts
from lowtide.plan.aside import make_plan_aside
from lowtide.program import Program
from lowtide.report.prediction import prediction_json, render_prediction
from lowtide.simulate import Forecast, load_forecast, save_forecast
from lowtide.simulate import forecast as make_forecast
from lowtide.units import parse_size


class Prediction:
    """What a training step needs, before it runs. Bytes throughout."""

    def __init__(self, forecast: Forecast, title: str) -> None:
        self.forecast = forecast
        self.title = title

    @property
    def peak(self) -> int:
        """Chunk bytes at the worst moment: what a memory limit has to allow."""
        return self.forecast.peak

    @property
    def timeline(self) -> Any:
        return self.forecast.timeline

    @property
    def by_category(self) -> dict[str, int]:
        return self.forecast.by_category

    @property
    def by_layer(self) -> dict[str, int]:
        return self.forecast.by_layer

    @property
    def per_sample(self) -> float | None:
        return self.forecast.per_sample

    @property
    def largest_batch(self) -> int | None:
        return self.forecast.largest_batch

    def table(self) -> str:
        """What `lowtide predict` prints."""
        return render_prediction(self.forecast, self.title)

    def to_json(self) -> dict[str, Any]:
        """What `lowtide predict --json` prints."""
        return prediction_json(self.forecast)

    def save(self, path: str | os.PathLike[str]) -> None:
        save_forecast(self.forecast, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Prediction:
        return cls(load_forecast(path), Path(path).name)

    def __str__(self) -> str:
        return self.table()


def predict(model: Any, batch_size: int = 32, data: Any = None, budget: str | int | None = None) -> Prediction:
    """What a training step of a compiled Keras model needs, training nothing.

    `data` is an example batch or anything `fit` takes, for models that do not say what their inputs look like.
    `budget` asks for the largest batch that fits it.
    """
    program = _program_of(model, batch_size, data)
    limit = None if budget is None else parse_size(budget)
    return Prediction(make_forecast(program, batch_size, limit), model.name)


def largest_batch(model: Any, budget: str | int, data: Any = None) -> int:
    """The largest batch of which a training step fits in `budget`; 0 when none does."""
    limit = parse_size(budget)
    program = _program_of(model, 32, data)
    largest = make_forecast(program, budget=limit).largest_batch
    if largest is None:
        raise BadUse(f"model {model.name!r} trains at one batch size only; its batch cannot be chosen")
    return largest


def _program_of(model: Any, batch_size: int, data: Any) -> Program:
    _check_batch(batch_size)
    from lowtide.tf.trace import capture_model, example_batch, first_batch

    batch = example_batch(model, batch_size) if data is None else first_batch(data, batch_size)
    return capture_model(model, batch).program


def _check_batch(batch_size: object) -> None:
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise BadUse(f"batch_size {batch_size!r}: expected a positive whole number")


def predict_target(
    target: str, arguments: Sequence[str] = (), batch: int | None = None, budget: int | None = None
) -> Prediction:
    """The same for a script, `module.py:factory` or a saved `.keras` file, run in a process of its own."""
    from lowtide.tf.child import capture_target

    captured = capture_target(target, arguments)
    program = captured.program
    if batch is not None and batch != program.batch and not program.scales:
        raise BadUse(
            f"{target} trains with batch {program.batch} and its step cannot be traced for another; "
            f"leave out --batch, or change the script's own batch to {batch}"
        )
    limit = memory_of_this_machine() if budget is None else budget
    forecast = replace(make_forecast(program, batch, limit), compiler=captured.compiler)
    return Prediction(forecast, Path(target).name)


def fit_within(model: Any, budget: str | int, batch_size: int = 32, data: Any = None, seconds: float = 20.0) -> Plan:
    """Plan the training step of a compiled Keras model; `model.fit` then stays within `budget`, results unchanged.

    The budget is of the device's memory, residents included. `release` undoes it, and so does another `compile`.
    Raises `Infeasible`, changing nothing, when no plan is found.
    """
    from lowtide.tf.fit import install, planned_model
    from lowtide.tf.trace import example_batch, first_batch

    _check_batch(batch_size)
    limit = parse_size(budget)
    batch = example_batch(model, batch_size) if data is None else first_batch(data, batch_size)
    step = planned_model(model, batch, lambda program, size: make_plan_aside(program, limit, size, seconds), batch_size)
    install(model, step)
    return step.plan


def release(model: Any) -> None:
    """Undo `fit_within`: the model trains as TensorFlow would have it."""
    from lowtide.tf.fit import release as undo

    undo(model)


def function(budget: str | int, seconds: float = 20.0) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """In place of `tf.function` for a custom training loop: the step is planned at its first call.

        @lowtide.function(budget="4 GiB")
        def train_step(x, y): ...
    """
    limit = parse_size(budget)

    def decorate(python_function: Callable[..., Any]) -> Callable[..., Any]:
        from lowtide.tf.fit import budgeted_function

        return wraps(python_function)(budgeted_function(python_function, limit, seconds))

    return decorate


def fit_target(
    target: str, arguments: Sequence[str], budget: str, seconds: float, on_plan: Callable[[dict[str, Any]], None]
) -> int:
    """Run a script with its training step planned for `budget`; returns the script's exit code."""
    from lowtide.tf.child import capture_target
    from lowtide.tf.child import fit_target as fit

    if budget.strip().endswith("%"):
        plain = make_forecast(capture_target(target, arguments).program)
        limit = parse_size(budget, of=(plain.plain_low + plain.plain_high) // 2)
    else:
        limit = parse_size(budget)
    return fit(target, arguments, limit, seconds, on_plan)


def plan_target(target: str, arguments: Sequence[str], budget: str, seconds: float) -> dict[str, Any]:
    """What `fit_target` would do, and bytes against time over all budgets; trains nothing."""
    from lowtide.tf.child import capture_target

    program = capture_target(target, arguments).program
    plain = make_forecast(program)
    limit = parse_size(budget, of=(plain.plain_low + plain.plain_high) // 2)
    plan = make_plan(program, limit, seconds=seconds)
    return {**plan_facts(plan), **plan_curve(program, seconds), "versions": dict(program.versions)}


def memory_of_this_machine() -> int:
    """Bytes a training process can have here: free RAM, or the control group's limit if that is less."""
    available = psutil.virtual_memory().available
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return int(available)
    return min(int(available), int(limit)) if limit.isdigit() else int(available)
