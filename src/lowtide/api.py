"""Joins the rooms: what the package offers to Python, and what the commands call."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from lowtide.errors import BadUse
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
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise BadUse(f"batch_size {batch_size!r}: expected a positive whole number")
    from lowtide.tf.trace import capture_model, example_batch, first_batch

    batch = example_batch(model, batch_size) if data is None else first_batch(data, batch_size)
    return capture_model(model, batch).program


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


def memory_of_this_machine() -> int:
    """Bytes a training process can have here: free RAM, or the control group's limit if that is less."""
    available = psutil.virtual_memory().available
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return int(available)
    return min(int(available), int(limit)) if limit.isdigit() else int(available)
