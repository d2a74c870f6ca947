"""`python -m benchmarks.planner` as a user meets it: figures, schedule, exit codes, one clear line when wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.planner import as_problem, main
from lowtide.plan import check

CHAIN = [{"cost": 3, "bytes": 10, "inputs": [i - 1] if i else []} for i in range(5)]
BACK = [{"cost": 6, "bytes": 10, "inputs": [4 + i, 4 - i]} for i in range(5)]
GRAPH = {"name": "step", "nodes": CHAIN + BACK}
KEYS = {"name", "base_peak", "budget", "peak", "base_cost", "cost", "tdi_percent", "lower_bound_percent"}


def write(path: Path, data: Any) -> str:
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return str(path)


def test_prints_one_json_object_and_writes_a_schedule_that_the_checker_accepts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph, out = write(tmp_path / "g.json", GRAPH), tmp_path / "out.json"
    arguments = [graph, "--budget", "0.8", "--seconds", "2", "--json", "--schedule", str(out)]
    assert main(arguments) == 0
    row = json.loads(capsys.readouterr().out)
    assert set(row) == KEYS | {"seconds", "feasible"}
    checked = check(as_problem(GRAPH), tuple(json.loads(out.read_text())), row["budget"])
    assert (checked.peak, checked.cost) == (row["peak"], row["cost"])
    assert row["feasible"]
    assert row["lower_bound_percent"] <= row["tdi_percent"]


def test_without_json_prints_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([write(tmp_path / "g.json", GRAPH), "--budget", "1"]) == 0
    assert "tdi_percent" in capsys.readouterr().out


def test_an_infeasible_budget_names_the_smallest_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    arguments = ["--budget", "0.1", "--seconds", "1", "--json", "--schedule", str(out)]
    assert main([write(tmp_path / "g.json", GRAPH), *arguments]) == 3
    printed = capsys.readouterr()
    assert json.loads(printed.out)["feasible"] is False
    assert "the smallest reached is 30 bytes" in printed.err
    assert not out.exists()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("{", "not JSON"),
        ([], "expected"),
        ({"nodes": []}, "at least one node"),
        ({"nodes": [{"cost": 1, "bytes": 1}]}, "node 0: expected an object"),
        ({"nodes": [{"cost": -1, "bytes": 1, "inputs": []}]}, "node 0: cost is -1"),
        ({"nodes": [{"cost": 1, "bytes": 1.5, "inputs": []}]}, "node 0: bytes is 1.5"),
        ({"nodes": [{"cost": 1, "bytes": 1, "inputs": [0]}]}, "nodes before it"),
        ({"nodes": [{"cost": 1, "bytes": 1, "inputs": ["a"]}]}, "list of node indices"),
    ],
)
def test_a_bad_graph_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: Any, reason: str
) -> None:
    assert main([write(tmp_path / "g.json", data)]) == 2
    printed = capsys.readouterr().err
    assert reason in printed
    assert printed.count("\n") == 1


def test_a_missing_graph_and_a_bad_budget_are_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "none.json")]) == 2
    assert "cannot be read" in capsys.readouterr().err
    assert main([write(tmp_path / "g.json", GRAPH), "--budget", "-1"]) == 2
    assert "above zero" in capsys.readouterr().err
