"""Timelines and Forecasts survive a round trip through a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from lowtide.errors import BadFile
from lowtide.program import Note, Program, Source, save_program
from lowtide.program.files import read_artifact, write_artifact
from lowtide.simulate import forecast, load_forecast, load_timeline, save_forecast, save_timeline, simulate
from tests.drafts import Draft, chain, kept_for_backward, random_programs


def labelled() -> Program:
    draft = Draft()
    value = draft.op("a", "Conv2D", draft.argument(), draft.argument("y"), layer="c/d", source=Source("train.py", 3))
    program = draft.program(value)
    return replace(program, notes=(Note("a", "bounded", 3, "why"),), versions={"keras": "3"})


@given(random_programs())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_timeline_comes_back(tmp_path: Path, program: Program) -> None:
    timeline = simulate(program)
    save_timeline(timeline, tmp_path / "t")
    assert load_timeline(tmp_path / "t") == timeline


@pytest.mark.parametrize("budget", [None, 1 << 20])
@pytest.mark.parametrize("program", [labelled(), chain(3), kept_for_backward(3)])
def test_a_forecast_comes_back_with_everything_it_says(tmp_path: Path, program: Program, budget: int | None) -> None:
    answer = replace(forecast(program, 8, budget), compiler="xla")
    save_forecast(answer, tmp_path / "f")
    again = load_forecast(tmp_path / "f")
    assert again == answer
    assert again.by_category == answer.by_category
    assert again.by_layer == answer.by_layer


LOADERS = [("timeline", load_timeline), ("prediction", load_forecast)]


@pytest.mark.parametrize(("kind", "load"), LOADERS)
def test_another_file_gets_one_clear_line(tmp_path: Path, kind: str, load: Callable[[Path], Any]) -> None:
    path = tmp_path / "file"
    save_program(chain(1), path)
    with pytest.raises(BadFile, match=f"expected a Lowtide {kind}, found program"):
        load(path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(BadFile, match="damaged"):
        load(path)
    write_artifact(path, kind, 99, {})
    with pytest.raises(BadFile, match="version 99"):
        load(path)
    with pytest.raises(BadFile, match="No such file"):
        load(tmp_path / "nowhere")


@pytest.mark.parametrize("part", ["timeline", "plain", "law", "notes", "versions"])
@pytest.mark.parametrize("junk", [None, 3, "x", [1], {"a": 1}])
def test_a_forecast_with_a_damaged_part_says_so(tmp_path: Path, part: str, junk: object) -> None:
    path = tmp_path / "f"
    save_forecast(forecast(chain(2), 8), path)
    body = read_artifact(path, "prediction", 1)
    write_artifact(path, "prediction", 1, {**body, part: junk})
    if part == "versions" and isinstance(junk, dict):
        assert load_forecast(path).versions == junk
        return
    with pytest.raises(BadFile, match="damaged prediction"):
        load_forecast(path)
