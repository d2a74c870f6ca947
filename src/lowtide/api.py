"""Joins the rooms: what the package offers to Python, and what the commands call."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import Any

from lowtide.errors import BadUse, Infeasible
from lowtide.machine import memory
from lowtide.plan import Plan, make_plan, plan_curve, plan_facts
from lowtide.plan.aside import MakePlan, make_plan_aside
from lowtide.plan.plan import Pattern
from lowtide.plan.room import in_one_region
from lowtide.program import Program
from lowtide.record import Recording
from lowtide.report.doctor import Checkup
from lowtide.report.html import write_html
from lowtide.report.page_plan import plan_page
from lowtide.report.page_prediction import prediction_page
from lowtide.report.prediction import prediction_json, render_prediction
from lowtide.simulate import Forecast, load_forecast, save_forecast
from lowtide.simulate import forecast as make_forecast
from lowtide.simulate.plain import plain_range
from lowtide.surroundings import gpus, kernel_limits, system_versions, watched_variables
from lowtide.units import format_size, is_share, parse_size

LEAST_LIMIT = 1 << 20
"""TensorFlow's allocator takes its limit in whole MiB."""


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

    def save_html(self, path: str | os.PathLike[str], recording: Recording | None = None) -> None:
        """What `lowtide predict --html` writes: a page, with what `recording` measured beside it."""
        write_html(prediction_page(self.forecast, self.title, recording), path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Prediction:
        return cls(load_forecast(path), Path(path).name)

    def __str__(self) -> str:
        return self.table()


def predict(model: Any, batch_size: int = 32, data: Any = None, budget: str | int | None = None) -> Prediction:
    """What a training step of a compiled Keras model needs, training nothing.

    `data` is an example batch or anything `fit` takes, for models that do not say what their inputs look like.
    `budget` asks for the largest batch that fits it. Of a model on several devices this is one device, with its share
    of the batch.
    """
    limit = None if budget is None else parse_size(budget)
    program, compiler, replicas = _program_of(model, batch_size, data)
    share = -(-batch_size // replicas)
    if share != program.batch and not program.scales:
        raise BadUse(f"model {model.name!r} trains at batch {program.batch} only, received batch_size {batch_size}")
    return Prediction(replace(make_forecast(program, share, limit), compiler=compiler), model.name)


def largest_batch(model: Any, budget: str | int, data: Any = None) -> int:
    """The largest batch of which a training step fits in `budget`; 0 when none does."""
    limit = parse_size(budget)
    program, _, replicas = _program_of(model, 32, data)
    largest = make_forecast(program, budget=limit).largest_batch
    if largest is None:
        raise BadUse(f"model {model.name!r} trains at one batch size only; its batch cannot be chosen")
    return largest * replicas


def _program_of(model: Any, batch_size: int, data: Any) -> tuple[Program, str, int]:
    """The step at that batch, its compiler, and how many devices share the batch.

    What has to be tried out about the step is, in a process of its own.
    """
    _check_batch(batch_size)
    from lowtide.tf.aside import settled_model
    from lowtide.tf.trace import example_batch, first_batch, replicas_of

    replicas = replicas_of(model)
    share = -(-batch_size // replicas)
    batch = example_batch(model, share) if data is None else first_batch(data, share)
    return *settled_model(model, batch, share, data is not None), replicas


def _check_batch(batch_size: object) -> None:
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise BadUse(f"batch_size {batch_size!r}: expected a positive whole number")


def predict_target(
    target: str, arguments: Sequence[str] = (), batch: int | None = None, budget: int | None = None
) -> Prediction:
    """The same for a script, `module.py:factory` or a saved `.keras` file, run in a process of its own."""
    from lowtide.tf.child import capture_target

    captured = capture_target(target, arguments, batch)
    program = captured.program
    if batch is not None and batch != program.batch and not program.scales:
        raise BadUse(
            f"{target} trains with batch {program.batch} and its step cannot be traced for another; "
            f"leave out --batch, or change the script's own batch to {batch}"
        )
    limit = memory().usable if budget is None else budget
    forecast = replace(make_forecast(program, batch, limit), compiler=captured.compiler)
    return Prediction(forecast, Path(target).name)


def fit_within(model: Any, budget: str | int, batch_size: int = 32, data: Any = None, seconds: float = 20.0) -> Plan:
    """Plan the training step of a compiled Keras model; `model.fit` then stays within `budget`, results unchanged.

    The budget is of the device's memory, residents included: bytes, or "80%" of what plain TensorFlow needs. `data` is
    an example batch or anything `fit` takes. A larger batch than `batch_size`, or data of another kind, is planned when
    it comes. `release` undoes it, and so does another `compile`. Raises `Infeasible`, changing nothing, when no plan is
    found.
    """
    from lowtide.tf.fit import install, planned_model
    from lowtide.tf.trace import example_batch, first_batch

    _check_batch(batch_size)
    make = _planning(budget, seconds)
    batch = example_batch(model, batch_size) if data is None else first_batch(data, batch_size)
    step = planned_model(model, batch, make, batch_size)
    install(model, step)
    return step.plan


def _planning(budget: str | int, seconds: float) -> MakePlan:
    """How to plan for a budget. A percentage is of what plain TensorFlow needs for the first step that is planned."""
    parse_size(budget, of=100)  # one that is none is refused before anything is done
    limits: list[int] = []

    def make(program: Program, batch: int, more_ahead: int, like: Pattern | None) -> Plan:
        if not limits:
            limits.append(_bytes_of(budget, program, batch))
        return make_plan_aside(program, limits[0], batch, seconds, more_ahead, like)

    return make


def _bytes_of(budget: str | int, program: Program, batch: int) -> int:
    if is_share(budget):
        plain = plain_range(program, batch)
        return parse_size(budget, of=(plain.low + plain.high) // 2)
    return parse_size(budget)


def release(model: Any) -> None:
    """Undo `fit_within`: the model trains as TensorFlow would have it."""
    from lowtide.tf.fit import release as undo
    from lowtide.tf.trace import require_compiled

    require_compiled(model)
    undo(model)


def function(budget: str | int, seconds: float = 20.0) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """In place of `tf.function` for a custom training loop: the step is planned at its first call.

        @lowtide.function(budget="4 GiB")
        def train_step(x, y): ...
    """
    if callable(budget):
        raise BadUse("@lowtide.function without a budget; expected @lowtide.function(budget=\"4 GiB\")")
    parse_size(budget, of=100)

    def decorate(python_function: Callable[..., Any]) -> Callable[..., Any]:
        from lowtide.tf.fit import budgeted_function

        return wraps(python_function)(budgeted_function(python_function, _planning(budget, seconds)))

    return decorate


def fit_target(
    target: str, arguments: Sequence[str], budget: str, seconds: float, on_plan: Callable[[dict[str, Any]], None]
) -> int:
    """Run a script with its training step planned for `budget`; returns the script's exit code."""
    from lowtide.tf.child import NoRoomToBegin, capture_target, require_script
    from lowtide.tf.child import fit_target as fit

    require_script(target)
    captured = capture_target(target, arguments) if is_share(budget) else None
    if captured is not None:
        captured.require_fit()
        limit = _bytes_of(budget, captured.program, captured.program.batch)
    else:
        limit = parse_size(budget)
    _check_limit(budget, limit)
    try:
        return fit(target, arguments, limit, seconds, on_plan)
    except NoRoomToBegin as error:
        captured = captured or capture_target(target, arguments)
        captured.require_fit()
        raise _larger_than_before_the_step(str(error), captured.program, limit, seconds) from None


def _larger_than_before_the_step(what: str, program: Program, limit: int, seconds: float) -> Infeasible:
    """A budget that a script goes beyond before it trains: what it has by then, and the smallest for its step."""
    there = sum(chunk.bytes for chunk in program.chunks or () if chunk.in_use)
    try:
        smallest = make_plan(program, limit, seconds=seconds).peak
    except Infeasible as refusal:
        smallest = refusal.smallest_bytes
    least = -(-max(smallest, there) // LEAST_LIMIT) * LEAST_LIMIT
    return Infeasible(
        f"{what}. It has {format_size(there)} on the device when it begins to train, and the smallest budget for its "
        f"step is {format_size(least)}, if making what it has does not need more for a moment",
        least,
    )


def _check_limit(budget: str, limit: int) -> None:
    if limit < LEAST_LIMIT:
        raise BadUse(f"budget {budget!r}: expected at least {format_size(LEAST_LIMIT)}, the least a limit can be")


def plan_target(
    target: str,
    arguments: Sequence[str],
    budget: str,
    seconds: float,
    html: Path | None = None,
    recording: Recording | None = None,
) -> dict[str, Any]:
    """What `fit_target` would do, and bytes against time over all budgets; trains nothing.

    `html` is where to write it as a page, with what `recording` measured beside it.
    """
    from lowtide.tf.child import capture_target

    captured = capture_target(target, arguments)
    captured.require_order()
    program = captured.program
    plain = plain_range(program, program.batch)
    limit = _bytes_of(budget, program, program.batch)
    _check_limit(budget, limit)
    limit = limit // LEAST_LIMIT * LEAST_LIMIT
    if program.chunks is not None:  # as the process of `fit` will have it: one region of that size
        program = replace(program, chunks=in_one_region(program.chunks, limit))
    plan = make_plan(program, limit, seconds=seconds)
    curve = plan_curve(program, seconds, found=plan)
    facts = {**plan_facts(plan, plain), **curve, "versions": dict(program.versions)}
    if html is not None:
        write_html(plan_page(plan, facts, Path(target).name, recording), html)
    return facts


def examine_machine() -> Checkup:
    """This machine as a training process finds it; TensorFlow is asked in a process of its own."""
    from lowtide import __version__
    from lowtide.tf.look import look

    return Checkup(
        __version__, system_versions(), memory(), kernel_limits(), watched_variables(), tuple(gpus()), look()
    )
