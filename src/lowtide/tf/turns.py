"""Which branch each step takes, where a counter decides: weights overwritten with their averages every tenth step,
gradients applied every fourth. Runs nothing.

A counter is a whole number in a variable that the step sets to something which follows from its value before, as an
optimizer does with its iterations. What follows from counters alone is played for some steps; a branch that is taken in
turns is known then. One that stays the same for all of these may still change later, and is left unknown.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from lowtide.ops import BRANCHES
from lowtide.program import Program
from lowtide.tf.compat import GraphDef
from lowtide.tf.graphs import CONTROL, edges
from lowtide.tf.values import computed

MOST_TURNS = 15
"""After so many steps all has come round again, or it is left unknown: not many more are simulated."""
ROUNDS = 3
"""So often it has to."""


def with_turns(program: Program, graph_def: GraphDef, counters: Mapping[str, int]) -> Program:
    """`program` with the turns of its branches. `counters`: what whole numbers the captured variables hold, by the name
    of their input."""
    found = _turns(graph_def, counters)
    if not found:
        return program
    known = {f"{op.kind} {op.name}" for op in program.ops if op.name in found}
    return replace(
        program,
        ops=tuple(replace(op, turns=found[op.name]) if op.name in found else op for op in program.ops),
        notes=tuple(note for note in program.notes if note.what not in known),
    )


def _turns(graph_def: GraphDef, counters: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    branches = [node for node in graph_def.node if node.op in BRANCHES]
    if not branches or not counters:
        return {}
    play = _Play(graph_def, counters)
    taken: dict[str, list[int | None]] = {node.name: [] for node in branches}
    for _ in range(ROUNDS * MOST_TURNS):
        for node in branches:
            taken[node.name].append(play.arm(node))
        play.step()
    return {name: turns for name, arms in taken.items() if (turns := _period(arms))}


def _period(arms: list[int | None]) -> tuple[int, ...]:
    """What comes round again, of several; () where nothing does."""
    known = [arm for arm in arms if arm is not None]
    if len(known) < len(arms):
        return ()
    for length in range(2, MOST_TURNS + 1):
        if all(arm == known[i % length] for i, arm in enumerate(known)) and len({*known}) > 1:
            return tuple(known[:length])
    return ()


class _Play:
    """The counters of a graph, from step to step."""

    def __init__(self, graph_def: GraphDef, counters: Mapping[str, int]) -> None:
        self._nodes = {node.name: node for node in graph_def.node}
        self._functions = {f.signature.name: f for f in graph_def.library.function}
        self._setters = _setters(graph_def, counters, self._functions)
        self._now: dict[str, Any] = {name: counters[name] for name in self._setters}
        self._known: dict[str, Any] = {}
        self._later: dict[str, bool] = {}

    def arm(self, node: Any) -> int | None:
        """The branch that a node takes in this step."""
        index = self._value(edges(node)[0].node)
        if index is None or np.size(index) != 1:
            return None
        chosen = np.asarray(index).reshape(())[()]
        return int(not chosen) if node.op.endswith("If") else int(chosen)

    def step(self) -> None:
        """On to the next step."""
        self._now = {name: self._after(name) for name in self._setters}
        self._known.clear()

    def _after(self, counter: str) -> Any:
        setter = self._setters[counter]
        given, before = self._value(edges(setter)[1].node), self._now[counter]
        if given is None or before is None or np.size(given) != 1:
            return None
        return _SETS[setter.op](before, int(np.asarray(given).reshape(())[()]))

    def _value(self, name: str) -> Any:
        if name not in self._known:
            self._known[name] = None  # of a loop in the graph nothing is known
            self._known[name] = self._computed(self._nodes[name])
        return self._known[name]

    def _computed(self, node: Any) -> Any:
        if node.op == "Const":
            return tf.make_ndarray(node.attr["value"].tensor) if _is_small(node) else None
        sources = [edge for edge in edges(node) if edge.output != CONTROL]
        if node.op == "ReadVariableOp":
            counter = sources[0].node
            if counter not in self._setters:
                return None
            return self._after(counter) if self._is_after(node.name, counter) else self._now[counter]
        if any(edge.output for edge in sources):
            return None
        return computed(node, [self._value(edge.node) for edge in sources])

    def _is_after(self, reader: str, counter: str) -> bool:
        """Whether a node has to wait for the one that sets the counter."""
        if reader not in self._later:
            self._later[reader] = self._setters[counter].name in _ancestors(reader, self._nodes)
        return self._later[reader]


def _is_small(node: Any) -> bool:
    return all(dim.size <= 1 for dim in node.attr["value"].tensor.tensor_shape.dim)


def _ancestors(name: str, nodes: Mapping[str, Any]) -> set[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for edge in edges(nodes[waiting.pop()]):
            if edge.node not in found:
                found.add(edge.node)
                waiting.append(edge.node)
    return found


_SETS: Mapping[str, Callable[[int, int], int]] = {
    "AssignVariableOp": lambda before, given: given,
    "AssignAddVariableOp": operator.add,
    "AssignSubVariableOp": operator.sub,
}


def _setters(graph_def: GraphDef, counters: Mapping[str, int], functions: Mapping[str, Any]) -> dict[str, Any]:
    """By counter the one node that sets it, and nothing else does more than read it."""
    setters: dict[str, list[Any]] = {name: [] for name in counters}
    for node in graph_def.node:
        for position, edge in enumerate(edges(node)):
            if edge.node not in setters or edge.output == CONTROL:
                continue
            if node.op in _SETS:
                setters[edge.node].append(node)
            elif not _only_reads(node, position, functions):
                setters[edge.node] += [node, node]  # too many
    return {name: found[0] for name, found in setters.items() if len(found) == 1}


def _only_reads(node: Any, position: int, functions: Mapping[str, Any]) -> bool:
    """Whether a node does nothing but read the variable that it is handed at this place."""
    if node.op == "ReadVariableOp":
        return True
    skipped = 1 if node.op in BRANCHES else 0
    called = list(_called(node))
    return bool(called) and all(_body_only_reads(functions[name], position - skipped, functions) for name in called)


def _body_only_reads(function: Any, argument: int, functions: Mapping[str, Any]) -> bool:
    name = function.signature.input_arg[argument].name
    return all(
        _only_reads(node, position, functions)
        for node in function.node_def
        for position, text in enumerate(node.input)
        if text.partition(":")[0] == name
    )


def _called(node: Any) -> Iterator[str]:
    for attribute in node.attr.values():
        if attribute.HasField("func"):
            yield attribute.func.name
        yield from (function.name for function in attribute.list.func)
