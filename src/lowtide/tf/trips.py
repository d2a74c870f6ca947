"""How often a counting loop goes round, read off its condition and its body."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from lowtide.tf.known import Known


def trip_count(cond: Any, body: Any, given: Sequence[Known]) -> int | None:
    """How often a counting loop goes round: `counter < limit`, counter up by one; None when it is not such a loop.

    Several conditions joined by `and` give the smallest: each is a bound, and counting loops have no other exit.
    """
    nodes = {node.name: node for node in cond.node_def}
    arguments = {arg.name: index for index, arg in enumerate(cond.signature.input_arg)}
    wanted = [cond.ret[cond.signature.output_arg[0].name]]
    counts = []
    while wanted:
        node = nodes.get(wanted.pop().split(":")[0])
        if node is None:
            return None
        if node.op in ("LogicalAnd", "Identity"):
            wanted.extend(text for text in node.input if not text.startswith("^"))
        elif node.op == "Less":
            counts.append(_count(node, nodes, arguments, body, given))
        else:
            return None
    if not counts or None in counts:
        return None
    return min(count for count in counts if count is not None)


def _count(
    less: Any, nodes: Mapping[str, Any], arguments: Mapping[str, int], body: Any, given: Sequence[Known]
) -> int | None:
    counter, limit = (_argument(text, nodes, arguments) for text in less.input[:2])
    bound = _constant(less.input[1], nodes) if limit is None else given[limit].value
    if limit is not None and not passes_through(body, limit):
        return None
    if counter is None or bound is None or given[counter].value is None or not _counts_up(body, counter):
        return None
    return max(0, int(bound) - int(given[counter].value))


def _argument(tensor: str, nodes: Mapping[str, Any], arguments: Mapping[str, int]) -> int | None:
    while (node := nodes.get(tensor.split(":")[0])) is not None and node.op == "Identity":
        tensor = node.input[0]
    return arguments.get(tensor)


def _constant(tensor: str, nodes: Mapping[str, Any]) -> Any:
    node = nodes.get(tensor.split(":")[0])
    if node is None or node.op != "Const":
        return None
    return tf.make_ndarray(node.attr["value"].tensor)


def _counts_up(body: Any, index: int) -> bool:
    nodes = {node.name: node for node in body.node_def}
    argument = body.signature.input_arg[index].name
    node = nodes.get(_through_identity(body, body.ret[body.signature.output_arg[index].name]).split(":")[0])
    if node is None or node.op not in ("AddV2", "Add"):
        return False
    step = next((_constant(text, nodes) for text in node.input[:2] if _constant(text, nodes) is not None), None)
    return step is not None and int(step) == 1 and argument in node.input[:2]


def passes_through(body: Any, index: int) -> bool:
    argument = body.signature.input_arg[index].name
    returned = body.ret[body.signature.output_arg[index].name]
    return argument in (returned, _through_identity(body, returned))


def _through_identity(body: Any, tensor: str) -> str:
    nodes = {node.name: node for node in body.node_def}
    while (node := nodes.get(tensor.split(":")[0])) is not None and node.op == "Identity":
        tensor = node.input[0]
    return tensor
