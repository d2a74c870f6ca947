"""A Forecast as people and as programs read it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from lowtide.api import Prediction
from lowtide.program import Note, Program, Source
from lowtide.report.prediction import prediction_json, render_prediction
from lowtide.simulate import CATEGORIES, Forecast, forecast
from lowtide.units import format_size
from tests.drafts import SQUARE, Draft, chain, kept_for_backward

KEYS = {
    "peak_bytes", "resident_bytes", "step_bytes", "requested_peak_bytes", "plain_low_bytes", "plain_high_bytes",
    "batch", "fixed_bytes", "per_sample_bytes", "largest_batch", "at", "categories", "layers", "tensors", "unknown",
    "versions", "budget_bytes", "compiler",
}  # fmt: skip
"""The contract: may be added to in the issue first, never renamed."""

HOSTILE = "[red]x[/red]"
SCRIPT = "<script>alert(1)</script>"


def hostile_step() -> Program:
    """Names that mean something to a terminal library or a browser, and a very long one."""
    draft = Draft()
    w = draft.variable("[bold]w[/bold]", SQUARE, layer=HOSTILE)
    weights = draft.op("read", "ReadVariableOp", w, shape=SQUARE, layer=HOSTILE)
    first = draft.op(SCRIPT, "MatMul", draft.argument(), weights, layer=HOSTILE, source=Source("/a/[red]x.py", 7))
    second = draft.op("b", "MatMul", first, layer=SCRIPT, source=Source("/home/me/train.py", 12))
    third = draft.op("c", "MatMul", second, layer="encoder/" + "very_long_block_name/" * 9 + "conv")
    note = Note(f"Where {HOSTILE}", "bounded", 1234, f"because {SCRIPT} [/] says so")
    return replace(draft.program(third), notes=(note,) * 12, versions={"tensorflow": "2.21.0", "keras": "3.15.1"})


def only_a_variable() -> Program:
    draft = Draft()
    return draft.program(draft.op("read", "ReadVariableOp", draft.variable(), shape=SQUARE))


FORECASTS = {
    "trained": forecast(kept_for_backward(6), 64, 1 << 30),
    "hostile": forecast(hostile_step(), 64, 1 << 20),
    "no budget": forecast(chain(3), 8),
    "one batch only": forecast(chain(3, shape=SQUARE), budget=1 << 30),
    "nothing fits": forecast(kept_for_backward(6), 64, 1000),
    "xla": replace(forecast(chain(3), 8), compiler="xla"),
    "allocates nothing": forecast(only_a_variable()),
}


@pytest.fixture(params=FORECASTS)
def answer(request: pytest.FixtureRequest) -> Forecast:
    return FORECASTS[request.param]


def test_the_json_has_the_documented_keys_and_no_others(answer: Forecast) -> None:
    made = prediction_json(answer)
    assert set(made) == KEYS
    assert set(made["at"]) == {"op", "layer", "file", "line"}
    assert set(made["categories"]) == set(CATEGORIES)
    assert all(set(layer) == {"layer", "size_bytes"} for layer in made["layers"])
    assert all(set(t) == {"size_bytes", "category", "op", "kind", "layer", "file", "line"} for t in made["tensors"])
    assert all(set(note) == {"what", "treatment", "size_bytes", "why"} for note in made["unknown"])


def byte_counts(data: Any, key: str = "") -> list[Any]:
    if isinstance(data, dict):
        return [count for name, child in data.items() for count in byte_counts(child, name)]
    if isinstance(data, list):
        return [count for child in data for count in byte_counts(child, key)]
    return [data] if key.endswith("_bytes") else []


def test_bytes_are_whole_numbers(answer: Forecast) -> None:
    made = json.loads(json.dumps(prediction_json(answer)))
    counts = [*byte_counts(made), *made["categories"].values()]
    assert counts
    assert all(type(count) is int for count in counts if count is not None)


def test_the_numbers_agree_with_each_other(answer: Forecast) -> None:
    made = prediction_json(answer)
    assert made["step_bytes"] == made["peak_bytes"] - made["resident_bytes"]
    assert made["requested_peak_bytes"] <= made["peak_bytes"]
    assert made["plain_low_bytes"] <= made["plain_high_bytes"]
    assert sum(made["categories"].values()) == made["peak_bytes"]
    sizes = [tensor["size_bytes"] for tensor in made["tensors"]]
    assert sizes == sorted(sizes, reverse=True)


def test_the_peak_says_where_it_is() -> None:
    at = prediction_json(FORECASTS["hostile"])["at"]
    assert at["op"] in (SCRIPT, "b", "c")
    tensors = {tensor["op"]: tensor for tensor in prediction_json(FORECASTS["hostile"])["tensors"]}
    assert (tensors["b"]["file"], tensors["b"]["line"]) == ("/home/me/train.py", 12)


def test_a_step_that_xla_compiles_says_so() -> None:
    assert prediction_json(FORECASTS["xla"])["compiler"] == "xla"
    assert prediction_json(FORECASTS["no budget"])["compiler"] == "executor"
    assert "XLA" in render_prediction(FORECASTS["xla"], "train.py")


def test_the_text_fits_eighty_columns_and_shows_the_peak(answer: Forecast) -> None:
    text = render_prediction(answer, "train.py")
    assert max(map(len, text.splitlines())) <= 80
    assert format_size(answer.peak) in text.splitlines()[0]
    assert "train.py" in text


@pytest.mark.parametrize("width", [40, 60, 120])
def test_the_text_fits_other_widths(answer: Forecast, width: int) -> None:
    assert max(map(len, render_prediction(answer, "train.py", width).splitlines())) <= width


def test_names_from_the_script_are_shown_as_they_are() -> None:
    text = render_prediction(FORECASTS["hostile"], "[blink]t[/blink].py", 200)
    for name in (HOSTILE, SCRIPT, "[blink]t[/blink].py", "[red]x.py:7", "train.py:12", "[/] says so"):
        assert name in text


def test_the_text_has_no_escape_codes_unless_it_goes_to_a_terminal(answer: Forecast) -> None:
    assert "\x1b" not in render_prediction(answer, "train.py")


def test_what_is_not_known_is_said_and_long_lists_are_cut() -> None:
    text = render_prediction(FORECASTS["hostile"], "train.py", 100)
    assert "bounded" in text
    assert "and 4 more: --json lists them" in text
    assert len(prediction_json(FORECASTS["hostile"])["unknown"]) == 12


def test_the_law_and_the_largest_batch_are_said_or_said_not_to_exist() -> None:
    assert "x batch" in render_prediction(FORECASTS["trained"], "train.py")
    assert "traced for this batch only" in render_prediction(FORECASTS["one batch only"], "train.py")
    assert "none fits in 1000 B" in render_prediction(FORECASTS["nothing fits"], "train.py")
    assert "largest batch" not in render_prediction(FORECASTS["no budget"], "train.py")


def test_the_same_from_python(tmp_path: Any) -> None:
    answer = FORECASTS["trained"]
    prediction = Prediction(answer, "model")
    assert prediction.peak == answer.peak
    assert prediction.to_json() == prediction_json(answer)
    assert str(prediction) == prediction.table() == render_prediction(answer, "model")
    prediction.save(tmp_path / "model.lowtide")
    again = Prediction.load(tmp_path / "model.lowtide")
    assert again.to_json() == prediction.to_json()
    assert (again.by_layer, again.per_sample) == (prediction.by_layer, prediction.per_sample)
