"""In which order TensorFlow's executor tells the readers of an op that it is done: the order of the graph's edges.

That order decides which of two gradients a thread computes next and which it leaves to another, so it moves the peak.
A node's edges are in the order in which its readers were added to the graph:

 - Grappler lists the nodes in an order of its own, `Op.position`. Where that is not known, or not of all ops,
   level by level from the inputs comes close.
 - oneDNN's pass then replaces the nodes it knows by new ones, added last, in reverse postorder.
 - Data edges are told before control edges.
 - A node with more than eight edges keeps them in a hash set of their addresses. The edges of the graph's source to
   the roots were made in one go, so their addresses follow one another, and the set begins somewhere among them. Other
   edges come in any order.

So two processes that run the same graph differ in what hash sets do, and one process does the same in every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from lowtide.ops import OWN_KERNEL
from lowtide.program import Op, Program

KEPT_IN_ORDER = 8
"""Edges of a node that TensorFlow keeps in the order they were added."""
HASH_SET_LOAD = 0.8
"""A hash set, whose room is a power of two, is at most this full."""

REPLACED = frozenset({
    "MatMul", "_FusedMatMul", "BatchMatMul", "BatchMatMulV2", "Einsum", "Transpose", "Softmax",
    "Conv2D", "_FusedConv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter", "DepthwiseConv2dNative",
    "_FusedDepthwiseConv2dNative", "DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropFilter",
    "Conv3D", "_FusedConv3D", "Conv3DBackpropInputV2", "Conv3DBackpropFilterV2",
    "MaxPool", "MaxPoolGrad", "AvgPool", "AvgPoolGrad", "MaxPool3D", "MaxPool3DGrad", "AvgPool3D", "AvgPool3DGrad",
    "FusedBatchNormV3", "FusedBatchNormGradV3", "_FusedBatchNormEx", "LRN", "LRNGrad",
})  # fmt: skip
"""Ops that oneDNN's pass replaces when they compute on floats."""

_ONEDNN_TYPES = frozenset({"float32", "bfloat16", "float16", "half"})


class Graph(NamedTuple):
    """The edges as one process has them: how many edges each op waits for, who waits for it, and where to begin."""

    waiting: list[int]
    readers: list[list[int]]
    roots: list[int]


class Edges:
    """A Program's edges, and what is the same of their order in every process."""

    def __init__(self, program: Program, twins: Sequence[int] | None = None) -> None:
        """`twins`: for each op the one whose node it shares, for a Program with loops written out."""
        ops = program.ops
        self._twins = range(len(ops)) if twins is None else twins
        maker = {value: index for index, op in enumerate(ops) for value in op.outputs}
        self._data = [dict.fromkeys(maker[v] for v in op.inputs if v in maker) for op in ops]
        self._needs = [[*dict.fromkeys((*data, *op.after))] for data, op in zip(self._data, ops, strict=True)]
        self._positions = _same(_positions(program, self._needs), self._twins)
        self._replaced = {index for index in range(len(ops)) if _is_replaced(program, index)}
        self._before_replacing = _readers(self._needs, self._data, self._positions)
        self._roots = sorted(
            (i for i, sources in enumerate(self._needs) if not sources), key=self._positions.__getitem__
        )

    def of_process(self, random: Random) -> Graph:
        position = list(self._positions)
        walk = _reverse_postorder(self._before_replacing, _hashed_in_a_row(self._roots, random))
        for place, index in enumerate(index for index in walk if index in self._replaced):
            position[index] = len(position) + place
        readers = _readers(self._needs, self._data, _same(position, self._twins))
        for index, told in enumerate(readers):
            if len(told) > KEPT_IN_ORDER:
                readers[index] = random.sample(told, len(told))
        return Graph([len(sources) for sources in self._needs], readers, _hashed_in_a_row(self._roots, random))


def _positions(program: Program, needs: Sequence[Sequence[int]]) -> list[int]:
    """Grappler's order where it is known of every op, else level by level, which is how Grappler sorts."""
    known = [_position(op) for op in program.ops]
    if UNKNOWN_POSITION not in known:
        return known
    users: list[list[int]] = [[] for _ in needs]
    for reader, sources in enumerate(needs):
        for source in sources:
            users[source].append(reader)
    waiting = [len(sources) for sources in needs]
    order = [index for index, count in enumerate(waiting) if not count]
    order.sort(key=known.__getitem__)
    for index in order:  # grows while it is walked
        for user in users[index]:
            waiting[user] -= 1
            if not waiting[user]:
                order.append(user)
    position = [0] * len(needs)
    for place, index in enumerate(order):
        position[index] = place
    return position


UNKNOWN_POSITION = -1


def _position(op: Op) -> int:
    position: int = getattr(op, "position", UNKNOWN_POSITION)
    return position


def _same(position: Sequence[int], twins: Sequence[int]) -> list[int]:
    return [position[twin] for twin in twins]


def _is_replaced(program: Program, index: int) -> bool:
    op = program.ops[index]
    if op.kind not in REPLACED or not op.outputs or op.attrs.get(OWN_KERNEL):
        return False
    return program.values[op.outputs[0]].dtype in _ONEDNN_TYPES


def _readers(
    needs: Sequence[Sequence[int]], data: Sequence[dict[int, None]], position: Sequence[int]
) -> list[list[int]]:
    readers: list[list[int]] = [[] for _ in needs]
    control: list[list[int]] = [[] for _ in needs]
    for reader in sorted(range(len(needs)), key=position.__getitem__):
        for source in needs[reader]:
            (readers if source in data[reader] else control)[source].append(reader)
    return [[*first, *then] for first, then in zip(readers, control, strict=True)]


def _reverse_postorder(readers: Sequence[Sequence[int]], roots: Sequence[int]) -> list[int]:
    """Depth first, the last edge first, as TensorFlow walks a graph."""
    seen = [False] * len(readers)
    stack, left = list(roots), list[int]()
    while stack:
        node = stack.pop()
        if node < 0:
            left.append(~node)
        elif not seen[node]:
            seen[node] = True
            stack.append(~node)
            stack.extend(reader for reader in readers[node] if not seen[reader])
    return left[::-1]


def _hashed_in_a_row(nodes: list[int], random: Random) -> list[int]:
    """What a hash set makes of edges at addresses that follow one another: it starts anywhere, and may wrap around."""
    if len(nodes) <= KEPT_IN_ORDER:
        return nodes
    room = KEPT_IN_ORDER
    while room * HASH_SET_LOAD < len(nodes):
        room *= 2
    wraps_at = room - random.randrange(room)
    return nodes[wraps_at:] + nodes[:wraps_at]
