"""The shape of every tensor of a GraphDef at one batch size, from TensorFlow's own shape inference.

TensorFlow infers each shape as a node is added to a graph (`lowtide.tf.growing`). Loops, branches and calls are
inferred body by body, and stand in the outer graph as placeholders of what they return: TensorFlow alone forgets what a
tensor list holds. So the graph is added in levels: what stands before all control flow, then what stands after some of
it. Nothing is executed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lowtide.ops import BRANCHES, LOOPS
from lowtide.tf import compat
from lowtide.tf.bounds import bound
from lowtide.tf.compat import GraphDef
from lowtide.tf.graphs import CONTROL, edges, in_order, parse_tensor
from lowtide.tf.growing import GrowingGraph
from lowtide.tf.held import follow_lists
from lowtide.tf.known import Inferred, Known
from lowtide.tf.trips import passes_through, trip_count

CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
CONTROL_FLOW = LOOPS | BRANCHES | CALLS


Functions = Mapping[str, Any]


def infer(graph_def: GraphDef, arguments: Mapping[str, Known], functions: Functions) -> Inferred:
    """Shapes of all tensors of `graph_def`, in topological order, when its placeholders are `arguments`."""
    growing = GrowingGraph(graph_def, arguments)
    found = Inferred(growing.tensors)
    for nodes in _levels(graph_def.node):
        plain = [node for node in nodes if node.op not in CONTROL_FLOW]
        growing.add(plain)
        while learned := follow_lists(plain, growing) or bound(plain, growing, found):
            for name, outputs in learned.items():
                growing.stand_in(name, outputs)
            growing.add(plain)
        for node in nodes:
            if node.op in CONTROL_FLOW:
                given = [growing.tensors[edge] for edge in edges(node) if edge.output != CONTROL]
                growing.stand_in(node.name, _infer_control_flow(node, given, functions, found))
    return found


def _levels(nodes: Sequence[Any]) -> list[list[Any]]:
    """The nodes by how many loops, branches and calls stand before them, one behind the other."""
    level: dict[str, int] = {}
    levels: list[list[Any]] = []
    for node in nodes:
        sources = [edge.node for edge in edges(node) if edge.output != CONTROL]
        own = max((level[source] for source in sources), default=0)
        while len(levels) <= own:
            levels.append([])
        levels[own].append(node)
        level[node.name] = own + (node.op in CONTROL_FLOW)
    return levels


# --- loops, branches, calls ---


def _infer_control_flow(node: Any, given: Sequence[Known], functions: Functions, found: Inferred) -> list[Known]:
    if node.op in LOOPS:
        return _infer_loop(node, given, functions, found)
    if node.op in CALLS:
        return _infer_body(node.attr["f"].func.name, given, functions, found)
    names = branch_names(node)
    arms = [_infer_arm(name, [_in_arm(k, arm) for k in given[1:]], functions, found) for arm, name in enumerate(names)]
    chosen = _chosen(given[0], len(arms))
    return [_larger(outputs, chosen) for outputs in zip(*arms, strict=True)]


def _chosen(choice: Known, arms: int) -> int | None:
    """Which of the arms runs, where that is known before: the first of an `If` if it is true, of a `Case` by number."""
    if choice.value is None or np.ndim(choice.value):
        return None
    if choice.dtype == "bool":
        return 0 if choice.value else 1
    return int(choice.value) if 0 <= int(choice.value) < arms else arms - 1


def _in_arm(known: Known, arm: int) -> Known:
    """What a branch of the gradient is given: what the same branch of the forward pass kept for it."""
    return known.arms[arm] if arm < len(known.arms) else known


def _infer_arm(name: str, given: Sequence[Known], functions: Functions, found: Inferred) -> list[Known]:
    """Where the branches return different shapes, the smaller one's gradient does not fit what was assumed outside."""
    try:
        return _infer_body(name, given, functions, found)
    except ValueError:
        anything = [k if k.dtype in ("variant", "resource") else Known(k.dtype, None) for k in given]
        return _infer_body(name, anything, functions, found)


def branch_names(node: Any) -> list[str]:
    """The functions an If or a Case chooses from."""
    if "branches" in node.attr:
        return [func.name for func in node.attr["branches"].list.func]
    return [node.attr[arm].func.name for arm in ("then_branch", "else_branch")]


def _infer_loop(node: Any, given: Sequence[Known], functions: Functions, found: Inferred) -> list[Known]:
    body, cond = node.attr["body"].func.name, node.attr["cond"].func.name
    inside = _carried(functions[body], given)
    after = _infer_body(body, inside, functions, found)
    widened = [_widen(a, b) for a, b in zip(inside, after, strict=True)]
    if any(_differs(a, b) for a, b in zip(widened, inside, strict=True)):
        inside = widened
        after = _infer_body(body, inside, functions, found)
    trips = trip_count(functions[cond], functions[body], given)
    found.trips[node.name] = trips
    found.trips[body] = trips
    _infer_body(cond, inside, functions, found)
    return [_after_loop(a, b, c, trips) for a, b, c in zip(given, inside, after, strict=True)]


def _carried(body: Any, given: Sequence[Known]) -> list[Known]:
    """What the body sees: a constant it changes is none inside; a list's length counts from here, a round's growth."""
    return [
        known if passes_through(body, index) else replace(known, value=None, length=0)
        for index, known in enumerate(given)
    ]


def _widen(before: Known, after: Known) -> Known:
    if before.dtype == "variant":
        return replace(before, element=before.element or after.element)
    if before.dims is None or after.dims is None or len(before.dims) != len(after.dims):
        return replace(before, dims=after.dims if before.dims is None else None)
    return replace(before, dims=tuple(a if a == b else None for a, b in zip(before.dims, after.dims, strict=True)))


def _differs(a: Known, b: Known) -> bool:
    return (a.dims, a.element) != (b.dims, b.element)


def _after_loop(before: Known, inside: Known, after: Known, trips: int | None) -> Known:
    if before.dtype == "variant":
        length = before.length
        if before != inside:
            known = length is not None and after.length is not None and trips is not None
            length = length + after.length * trips if known else None  # type: ignore[operator]  # known says so
        return replace(before, element=after.element or before.element, length=length)
    if before.value is not None and inside.value is None:
        return replace(before, value=before.value + trips if trips is not None and before.value.ndim == 0 else None)
    return replace(after, value=before.value)


def _infer_body(name: str, given: Sequence[Known], functions: Functions, found: Inferred) -> list[Known]:
    function = functions[name]
    graph_def, names = compat.function_as_graph(function)
    ordered = in_order(graph_def.node, {})
    del graph_def.node[:]
    graph_def.node.extend(ordered)
    arguments = {arg.name: known for arg, known in zip(function.signature.input_arg, given, strict=False)}
    inside = infer(graph_def, arguments, functions)
    found.bodies[name] = inside
    returned = (parse_tensor(names[function.ret[out.name]]) for out in function.signature.output_arg)
    return [inside.tensors[tensor] for tensor in returned]


def _larger(outputs: Sequence[Known], chosen: int | None) -> Known:
    """Of what the branches return, that of the one which is chosen; where nobody knows, the one with most elements: a
    bound, exact when they agree."""
    if chosen is not None and outputs[0].dtype != "variant":
        return outputs[chosen]
    if outputs[0].dtype == "variant":
        held = [known for known in outputs if known.element is not None]
        return replace(held[0], arms=tuple(outputs)) if held else outputs[0]
    complete = [known for known in outputs if known.complete]
    if len(complete) < len(outputs):
        return replace(outputs[0], dims=outputs[0].dims if not complete else complete[0].dims, value=None)
    return replace(max(complete, key=lambda known: known.elements), value=None)
