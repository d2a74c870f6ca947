"""The table that `lowtide fit` prints before training: short, and whole at 80 columns."""

from __future__ import annotations

from io import StringIO
from typing import Any

from rich.console import Console

from lowtide.plan import make_plan, plan_facts
from lowtide.report.plan import plan_view
from lowtide.simulate import simulate
from lowtide.simulate.plain import PlainRange, plain_range
from tests.plan.test_plan import step_of_layers


def shown(facts: dict[str, Any], title: str = "train.py") -> list[str]:
    text = StringIO()
    Console(width=80, file=text).print(plan_view(facts, title))
    return text.getvalue().splitlines()


def test_it_says_peak_without_and_with_the_moves_and_the_time() -> None:
    program = step_of_layers(16)
    budget = int(0.7 * simulate(program, 4).chunk_peak)
    plan = make_plan(program, budget, 4, seconds=2)
    facts = plan_facts(plan, plain_range(program, 4))
    text = "\n".join(shown(facts))
    assert "plain TensorFlow" in text
    assert f"{plan.peak / 2**20:.2f} MiB" in text
    assert "recompute" in text
    assert "predicted time paid" in text
    assert facts["moves"][-1]["peak_bytes"] == plan.peak


def test_it_is_whole_at_80_columns_even_for_large_numbers() -> None:
    program = step_of_layers(16)
    plan = make_plan(program, int(0.7 * simulate(program, 4).chunk_peak), 4, seconds=2)
    facts = plan_facts(plan, PlainRange(999 << 30, 1023 << 30))
    moves = [{**move, "count": 1_234_567, "peak_bytes": 999 << 30, "seconds": 123.4} for move in facts["moves"]]
    lines = shown({**facts, "moves": moves, "unknown": ["While: why"]}, "a_script_with_quite_a_long_name.py")
    assert all(len(line) <= 80 for line in lines)
    assert not [line for line in lines if "…" in line]
    assert any("not computed: 1 op" in line for line in lines)
