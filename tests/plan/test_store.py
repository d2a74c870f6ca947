"""A Plan survives a round trip through a file, and a file that is not one says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from lowtide.errors import BadFile, Infeasible
from lowtide.plan import Plan, load_plan, make_plan, save_plan
from lowtide.plan.aside import make_plan_aside
from lowtide.program import save_program
from lowtide.program.files import read_artifact, write_artifact
from lowtide.simulate import simulate, tidy_order
from tests.plan.test_plan import step_of_layers


@pytest.fixture(scope="module")
def plan() -> Plan:
    """One that computes something twice."""
    program = step_of_layers(12)
    before = simulate(program, 4, tidy_order(program, 4))
    budget = int(before.chunk_resident + 0.75 * (before.chunk_peak - before.chunk_resident))
    return make_plan(program, budget, seconds=2)


def test_a_plan_comes_back_as_it_was(plan: Plan, tmp_path: Path) -> None:
    assert len(plan.schedule) > len(set(plan.schedule))
    save_plan(plan, tmp_path / "p")
    assert load_plan(tmp_path / "p") == plan


def test_another_file_gets_one_clear_line(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "p"
    save_plan(plan, path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(BadFile, match="damaged"):
        load_plan(path)
    save_program(plan.program, path)
    with pytest.raises(BadFile, match="expected a Lowtide plan, found program"):
        load_plan(path)
    write_artifact(path, "plan", 99, {})
    with pytest.raises(BadFile, match="version 99"):
        load_plan(path)
    with pytest.raises(BadFile, match="No such file"):
        load_plan(tmp_path / "nowhere")


@pytest.mark.parametrize("part", ["schedule", "program", "timeline", "before", "seconds", "moves"])
@pytest.mark.parametrize("junk", [None, 3, [1], {"a": 1}])
def test_a_plan_with_a_damaged_part_says_so(plan: Plan, tmp_path: Path, part: str, junk: object) -> None:
    path = tmp_path / "p"
    save_plan(plan, path)
    write_artifact(path, "plan", 1, {**read_artifact(path, "plan", 1), part: junk})
    with pytest.raises(BadFile, match="damaged plan"):
        load_plan(path)


def test_a_process_of_its_own_gives_the_same_answers() -> None:
    program = step_of_layers(12)
    peak = simulate(program, 4, tidy_order(program, 4)).chunk_peak
    plan = make_plan_aside(program, 2 * peak, 4, seconds=2)
    assert plan == make_plan(program, 2 * peak, 4, seconds=2)
    with pytest.raises(Infeasible, match="smallest") as refusal:
        make_plan_aside(program, peak // 20, 4, seconds=2)
    assert refusal.value.smallest_bytes > peak // 20
