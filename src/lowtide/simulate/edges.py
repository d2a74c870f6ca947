"""In which order TensorFlow's executor tells the readers of an op that it is done: the order of the graph's edges.

That order decides which of two gradients a thread computes next and which it leaves to another, so it moves the peak.
A node's edges are in the order in which its readers were added to the graph:

 - Grappler lists the nodes in an order of its own, `Op.position`. Where that is not known, or not of all ops,
   level by level from the inputs comes close.
 - oneDNN's pass then replaces the nodes it knows by new ones, listed last, in reverse postorder.
 - The graph is built anew from that list: each time the first node of which all inputs are there.
 - Data edges are told before control edges.
 - A node with more than eight edges keeps them in a hash set of their addresses. The edges of the graph's source to
   the roots were made in one go, so their addresses follow one another: eight in a row have the same place in the set,
   and all but one move on from it. Other edges come in any order.

So two processes that run the same graph differ in what hash sets do, and one process does the same in every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from random import Random
from typing import NamedTuple

from lowtide.ops import OWN_KERNEL
from lowtide.program import UNLISTED, Program

KEPT_IN_ORDER = 8
"""Edges of a node that TensorFlow keeps in the order they were added."""
HASH_SET_LOAD = 0.8
"""A hash set, whose room is a power of two, is at most this full."""
EDGE_BYTES, ALIGNMENT = 32, 8
"""Bytes from one edge to the next, and what the first one's address is a multiple of."""

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
        self._is_written_out = any(twin != index for index, twin in enumerate(self._twins))
        maker = {value: index for index, op in enumerate(ops) for value in op.outputs}
        self._data = [dict.fromkeys(maker[v] for v in op.inputs if v in maker) for op in ops]
        self._needs = [[*dict.fromkeys((*data, *op.after))] for data, op in zip(self._data, ops, strict=True)]
        self._positions = _same(_positions(program, self._needs), self._twins)
        self._replaced = {index for index in range(len(ops)) if _is_replaced(program, index)}
        self._before_replacing = _readers(self._needs, self._data, self._positions)
        self._roots = sorted(
            (i for i, sources in enumerate(self._needs) if not sources), key=self._positions.__getitem__
        )

    def _added(self, position: Sequence[int]) -> Sequence[int]:
        """A loop written out is a circle in TensorFlow's graph, and its ops come as they are listed."""
        if self._is_written_out:
            return _same(position, self._twins)
        return _as_needed(self._needs, position)

    def listed_in_process(self, random: Random) -> list[int]:
        """Where each op is listed, once oneDNN's pass has been over the graph."""
        position = list(self._positions)
        walk = _reverse_postorder(self._before_replacing, _hashed_in_a_row(self._roots, random))
        for place, index in enumerate(index for index in walk if index in self._replaced):
            position[index] = len(position) + place
        return position

    def of_process(self, random: Random) -> Graph:
        position = self.listed_in_process(random)
        readers = _readers(self._needs, self._data, self._added(position))
        for index, told in enumerate(readers):
            if len(told) > KEPT_IN_ORDER:
                readers[index] = random.sample(told, len(told))
        return Graph([len(sources) for sources in self._needs], readers, _hashed_in_a_row(self._roots, random))


def _as_needed(needs: Sequence[Sequence[int]], position: Sequence[int]) -> list[int]:
    """When each node is added: the first in the listing of those that have all they need."""
    users = _users(needs)
    waiting = [len(sources) for sources in needs]
    ready = [(position[index], index) for index, count in enumerate(waiting) if not count]
    heapify(ready)
    added: dict[int, int] = {}
    while ready:
        _, index = heappop(ready)
        added[index] = len(added)
        for user in users[index]:
            waiting[user] -= 1
            if not waiting[user]:
                heappush(ready, (position[user], user))
    return [added[index] for index in range(len(needs))]


def _users(needs: Sequence[Sequence[int]]) -> list[list[int]]:
    users: list[list[int]] = [[] for _ in needs]
    for reader, sources in enumerate(needs):
        for source in sources:
            users[source].append(reader)
    return users


def _positions(program: Program, needs: Sequence[Sequence[int]]) -> list[int]:
    """Grappler's order where it is known of every op, else level by level, which is how Grappler sorts."""
    known = [op.position for op in program.ops]
    if UNLISTED not in known:
        return known
    users = _users(needs)
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
    """What TensorFlow's hash set makes of edges whose addresses follow one another, wherever the first one is."""
    if len(nodes) <= KEPT_IN_ORDER:
        return nodes
    first = random.randrange(2**32) * ALIGNMENT
    table: list[_Entry | None] = [None] * KEPT_IN_ORDER
    for size, node in enumerate(nodes):
        if size >= int(len(table) * HASH_SET_LOAD):
            held = [entry for entry in table if entry is not None]
            table = [None] * _room(size + 1)
            for entry in held:
                _put(table, entry)
        _put(table, (first + size * EDGE_BYTES, node))
    return [node for _, node in filter(None, table)]


_Entry = tuple[int, int]
"""An address, and whom it stands for."""


def _room(count: int) -> int:
    room = KEPT_IN_ORDER
    while count >= room * HASH_SET_LOAD:
        room *= 2
    return room


def _put(table: list[_Entry | None], entry: _Entry) -> None:
    address, mask, tries = entry[0], len(table) - 1, 1
    place = (address + (address >> 6)) >> 8 & mask
    while table[place] is not None:
        place = (place + tries) & mask
        tries += 1
    table[place] = entry
