"""The bytes that every schedule needs. The cost that every schedule pays is in `cut` and `stages`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, gcd

from lowtide.plan.problem import Problem

TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Floor:
    """No schedule has a peak below `peak`: `node` alone needs that much."""

    peak: int
    node: int


def peak_floor(problem: Problem) -> Floor:
    """The most bytes that one node needs while it executes: its inputs, its outputs, its scratch."""
    resident = problem.resident_bytes
    best = Floor(resident, 0)
    for n, node in enumerate(problem.nodes):
        need = resident + node.scratch + held_bytes(problem, n)
        if need > best.peak:
            best = Floor(need, n)
    kept = resident + sum(problem.values[r].bytes for r in storages(problem, _kept(problem)))
    return max(best, Floor(kept, len(problem.nodes) - 1), key=lambda floor: floor.peak)


def _kept(problem: Problem) -> list[int]:
    return [v for v, value in enumerate(problem.values) if value.kept]


def storages(problem: Problem, values: Iterable[int]) -> set[int]:
    """The storages of `values` that are not resident, each named by the value that made it."""
    out = set()
    for v in values:
        value = problem.values[v]
        while value.alias_of is not None:
            v, value = value.alias_of, problem.values[value.alias_of]
        if not value.resident:
            out.add(v)
    return out


def held_bytes(problem: Problem, n: int) -> int:
    """Bytes of inputs and outputs, supposing every buffer that could be handed on is."""
    node = problem.nodes[n]
    roots = storages(problem, (*node.inputs, *node.outputs))
    total = sum(problem.values[r].bytes for r in roots)
    free = storages(problem, node.inputs)
    for v in node.outputs:
        for c in problem.values[v].may_reuse:
            mine = storages(problem, (c,)) & free
            if mine and problem.values[min(mine)].bytes == problem.values[v].bytes:
                free -= mine
                total -= problem.values[v].bytes
                break
    return total


def round_up(extra: float, costs: Sequence[float]) -> float:
    """Whole costs add up to multiples of their greatest common divisor, so a bound on what they add up to may too."""
    if extra == float("inf") or any(cost != int(cost) for cost in costs) or not any(costs):
        return extra
    unit = gcd(*(int(cost) for cost in costs))
    return float(ceil(extra / unit - TOLERANCE) * unit)
