"""The bytes that every schedule needs. The cost that every schedule pays is in `stages`."""

from __future__ import annotations

from dataclasses import dataclass

from lowtide.plan.problem import Problem


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
        need = resident + node.scratch + _held(problem, n)
        if need > best.peak:
            best = Floor(need, n)
    kept = resident + sum(problem.values[r].bytes for r in _roots(problem, _kept(problem)))
    return max(best, Floor(kept, len(problem.nodes) - 1), key=lambda floor: floor.peak)


def _kept(problem: Problem) -> list[int]:
    return [v for v, value in enumerate(problem.values) if value.kept]


def _roots(problem: Problem, values: list[int] | tuple[int, ...]) -> set[int]:
    """The storages of `values` that are not resident, each named by the value that made it."""
    out = set()
    for v in values:
        value = problem.values[v]
        while value.alias_of is not None:
            v, value = value.alias_of, problem.values[value.alias_of]
        if not value.resident:
            out.add(v)
    return out


def _held(problem: Problem, n: int) -> int:
    """Bytes of inputs and outputs, supposing every buffer that could be handed on is."""
    node = problem.nodes[n]
    roots = _roots(problem, (*node.inputs, *node.outputs))
    total = sum(problem.values[r].bytes for r in roots)
    free = _roots(problem, node.inputs)
    for v in node.outputs:
        for c in problem.values[v].may_reuse:
            mine = _roots(problem, (c,)) & free
            if mine and problem.values[min(mine)].bytes == problem.values[v].bytes:
                free -= mine
                total -= problem.values[v].bytes
                break
    return total
