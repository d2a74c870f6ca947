"""Which phase of training an op belongs to: forward, backward, update. Told from names and edges of its graph."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from lowtide.tf.graphs import CONTROL, edges
from lowtide.tf.shapes import CONTROL_FLOW

BACKWARD_SCOPE = re.compile(r"(^|/)(gradient_tape|gradients(_\d+)?)(/|$)")


def assigns(kind: str) -> bool:
    """Whether an op of this kind changes a variable, its first input."""
    return kind.startswith(("Assign", "ResourceApply", "ResourceSparseApply", "ResourceScatter", "Apply"))


class _Node(NamedTuple):
    """What has to be known of a node; read once, for it is asked for often."""

    name: str
    kind: str
    sources: list[str]
    controls: list[str]
    whole: bool

    @classmethod
    def of(cls, node: Any) -> _Node:
        sources: list[str] = []
        controls: list[str] = []
        for edge in edges(node):
            (controls if edge.output == CONTROL else sources).append(edge.node)
        whole = node.op in ("Cast", "Range") or ("T" in node.attr and node.attr["T"].type in _WHOLE_NUMBERS)
        return cls(node.name, node.op, sources, controls, whole)


_WHOLE_NUMBERS = frozenset({tf.int32.as_datatype_enum, tf.int64.as_datatype_enum})


def phases(graph_nodes: Sequence[Any]) -> dict[str, str]:
    """forward, backward or update for each node, given in topological order.

    Backward is told by name. What follows a gradient and leads to no other gradient is the update, and so are other
    changes of the variables that it changes or alone reads (weight decay, averages, counters), and what only the
    update reads. A penalty on gradients follows one and leads to another, and is forward.
    """
    nodes = [_Node.of(node) for node in graph_nodes]
    backward = _backward(nodes)
    after = _after_a_gradient(nodes, backward)
    before = _before_a_gradient(nodes, backward)
    update = _with_what_only_they_read(nodes, after - before - backward, backward | before)
    update |= _other_changes(nodes, update)
    update = _with_what_only_they_read(nodes, update, backward | before)
    return {
        node.name: "backward" if node.name in backward else "update" if node.name in update else "forward"
        for node in nodes
    }


def _backward(nodes: Sequence[_Node]) -> set[str]:
    """By name; a sum of gradients is made by the tape outside its own scope."""
    found: set[str] = set()
    for node in nodes:
        if BACKWARD_SCOPE.search(node.name) or (node.kind == "AddN" and found.issuperset(node.sources)):
            found.add(node.name)
    return found


def _after_a_gradient(nodes: Sequence[_Node], backward: set[str]) -> set[str]:
    """What reads a gradient, or a variable once a gradient has changed it: that read hangs on a control edge."""
    sizes = _sizes(nodes)
    found: set[str] = set()
    changed: set[str] = set()
    for node in nodes:
        follows = any(name in found or (name in backward and name not in sizes) for name in node.sources)
        if follows or any(name in changed for name in node.controls):
            found.add(node.name)
            if assigns(node.kind) or node.kind in CONTROL_FLOW:
                changed.add(node.name)
    return found


def _sizes(nodes: Sequence[_Node]) -> set[str]:
    """Constants, shapes and what is computed of them: Grappler shares these between phases under any of their names."""
    found: set[str] = set()
    for node in nodes:
        if node.kind in _SIZE_OPS or (node.whole and node.sources and found.issuperset(node.sources)):
            found.add(node.name)
    return found


_SIZE_OPS = frozenset({"Const", "Shape", "ShapeN", "Rank", "Size"})


def _before_a_gradient(nodes: Sequence[_Node], backward: set[str]) -> set[str]:
    found: set[str] = set()
    for node in reversed(nodes):
        if node.name in backward or node.name in found:
            found.update(node.sources)
    return found


def _with_what_only_they_read(nodes: Sequence[_Node], these: set[str], others: set[str]) -> set[str]:
    """`these` and every node that they read and nothing else does; none of `others`."""
    found: set[str] = set()
    read: set[str] = set()
    read_by_others: set[str] = set()
    for node in reversed(nodes):
        fed = node.name in read and node.name not in read_by_others and node.name not in others
        if node.name in these or fed:
            found.add(node.name)
            read.update(node.sources)
        else:
            read_by_others.update(node.sources)
    return found


def _other_changes(nodes: Sequence[_Node], update: set[str]) -> set[str]:
    """Changes outside the update of variables that the update changes, or is alone to read."""
    changed: set[str] = set()
    read: set[str] = set()
    read_by_others: set[str] = set()
    for node in nodes:
        if assigns(node.kind):
            if node.name in update:
                changed.add(node.sources[0])
        elif node.name in update:
            read.update(node.sources)
        else:
            read_by_others.update(node.sources)
    theirs = changed | (read - read_by_others)
    return {node.name for node in nodes if assigns(node.kind) and node.sources[0] in theirs}
