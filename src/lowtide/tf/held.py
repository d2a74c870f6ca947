"""What tensor lists and optional values hold: TensorFlow's inference knows what a list was declared to hold, this knows
what was put in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lowtide.tf.graphs import CONTROL, Tensor, edges
from lowtide.tf.growing import GrowingGraph
from lowtide.tf.known import Known


def follow_lists(nodes: Sequence[Any], growing: GrowingGraph) -> dict[str, list[Known]]:
    """Fill in `element` and `length` of the tensor lists; returns the nodes of which TensorFlow knew less.

    A loop's shapes travel to its gradient as elements of lists: without their values the gradient has no shapes.
    """
    learned, tensors = {}, growing.tensors
    for node in nodes:
        if growing.stands_in(node.name) or not node.op.startswith(_MAY_HOLD_LISTS):
            continue
        given = [tensors[edge] for edge in edges(node) if edge.output != CONTROL]
        listed = _list_after(node.op, given)
        if listed is not None:
            out = Tensor(node.name, 0)
            tensors[out] = replace(tensors[out], element=listed[0], length=listed[1])
        taken = Tensor(node.name, 1 if node.op == "TensorListPopBack" else 0)
        if node.op in _TAKES and given[0].element is not None:
            better = _taken(node.op, given[0], tensors[taken])
            if (better.dims, better.value is None) != (tensors[taken].dims, tensors[taken].value is None):
                tensors[taken] = better
                learned[node.name] = [tensors[Tensor(node.name, i)] for i in range(taken.output + 1)]
    return learned


_MAY_HOLD_LISTS = ("TensorList", "EmptyTensorList", "Optional", "Identity", "ZerosLike")
_TAKES = frozenset({"TensorListPopBack", "TensorListGetItem", "TensorListStack", "OptionalGetValue"})


def _taken(op: str, source: Known, declared: Known) -> Known:
    element = source.element
    assert element is not None
    dims = element.dims
    if op == "TensorListStack" and dims is not None:
        count = source.length
        if count is None and declared.dims:
            count = declared.dims[0]
        dims = (count, *dims)
    if dims is None or declared.complete:
        dims = declared.dims
    return replace(declared, dims=dims, value=None if op == "TensorListStack" else element.value)


def _list_after(op: str, given: Sequence[Known]) -> tuple[Known | None, int | None] | None:
    """(what the list holds, how many) after `op`; None when `op` makes no list."""
    if op == "TensorListFromTensor":
        source = given[0]
        dims = None if source.dims is None else source.dims[1:]
        return Known(source.dtype, dims), source.dims[0] if source.dims else None
    if op in ("EmptyTensorList", "OptionalNone"):
        return None, 0
    if op == "OptionalFromValue":
        return (given[0], 1) if len(given) == 1 else None
    if op == "TensorListReserve":
        count = given[1].value
        return None, None if count is None else int(count)
    if op in ("Identity", "ZerosLike") and given[0].dtype == "variant":
        return given[0].element, given[0].length
    change = {"TensorListPushBack": 1, "TensorListPopBack": -1, "TensorListSetItem": 0}.get(op)
    if change is None:
        return None
    source = given[0]
    put = given[{"TensorListPushBack": 1, "TensorListSetItem": 2}[op]] if op != "TensorListPopBack" else None
    element = source.element if put is None else put
    return element, None if source.length is None else source.length + change
