"""Shapes that depend on the data, at their largest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lowtide.tf.graphs import CONTROL, Tensor, edges
from lowtide.tf.growing import GrowingGraph
from lowtide.tf.known import Inferred, Known


def bound(nodes: Sequence[Any], growing: GrowingGraph, found: Inferred) -> dict[str, list[Known]]:
    """Nodes with open dimensions and a known upper bound, at that bound."""
    learned, tensors = {}, growing.tensors
    for node in nodes:
        rule = _BOUNDS.get(node.op)
        if rule is None or growing.stands_in(node.name):
            continue
        given = [tensors[edge] for edge in edges(node) if edge.output != CONTROL]
        made = _outputs(node.name, tensors)
        if all(known.complete for known in made) or not all(known.complete for known in given):
            continue
        bounded = [replace(k, dims=d) for k, d in zip(made, rule(given, made), strict=True)]
        tensors.update({Tensor(node.name, i): known for i, known in enumerate(bounded)})
        if node.op not in _SMALL_AND_FOLDED:
            found.bounded.add(node.name)
            learned[node.name] = bounded
    return learned


def _outputs(node: str, tensors: Mapping[Tensor, Known]) -> list[Known]:
    outputs: list[Known] = []
    while (known := tensors.get(Tensor(node, len(outputs)))) is not None:
        outputs.append(known)
    return outputs


_SMALL_AND_FOLDED = frozenset({"BroadcastGradientArgs", "BroadcastArgs"})
"""A few axes each; TensorFlow computes their values where it needs them, so they must stay in the graph."""

_Dims = tuple[int | None, ...] | None


def _broadcast_axes(given: Sequence[Known], made: Sequence[Known]) -> list[_Dims]:
    """How many axes a gradient sums over to undo broadcasting; at most all when the shapes are not known here."""
    if any(known.value is None for known in given):
        return _longest_vector(given, made)
    shapes = [np.atleast_1d(known.value).tolist() for known in given]
    rank = max(map(len, shapes))
    padded = [[1] * (rank - len(shape)) + shape for shape in shapes]
    if shapes[0] == shapes[1]:
        return [(0,), (0,)]
    return [(sum(size == 1 for size in shape),) for shape in padded]


def _longest_vector(given: Sequence[Known], made: Sequence[Known]) -> list[_Dims]:
    longest = max(known.elements for known in given)
    return [(longest,) for _ in made]


def _every_index(given: Sequence[Known], made: Sequence[Known]) -> list[_Dims]:
    return [(given[0].elements, len(given[0].dims or ()))]


def _every_element(given: Sequence[Known], made: Sequence[Known]) -> list[_Dims]:
    return [(given[0].elements,) for _ in made]


def _every_row(given: Sequence[Known], made: Sequence[Known]) -> list[_Dims]:
    return [given[0].dims for _ in made]


_BOUNDS = {
    "BroadcastGradientArgs": _broadcast_axes,
    "BroadcastArgs": _longest_vector,
    "Where": _every_index,
    "Unique": _every_element,
    "UniqueV2": _every_element,
    "UniqueWithCounts": _every_element,
    "ListDiff": _every_element,
    "DynamicPartition": _every_row,
}
"""Upper bounds of outputs whose shape only the data tells."""
