"""The shape of every tensor of a GraphDef at one batch size, from TensorFlow's own shape inference.

The graph is imported with the batch filled in and its resource arguments replaced by variable handles of the right
type; TensorFlow then infers each shape as it adds the node. Loops and branches are inferred body by body, and stand
in the outer graph as placeholders of what they return: TensorFlow alone forgets what a tensor list holds. Nothing is
executed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from lowtide.tf import compat
from lowtide.tf.bounds import bound
from lowtide.tf.compat import GraphDef
from lowtide.tf.graphs import CONTROL, Tensor, edges, in_order, parse_tensor
from lowtide.tf.held import follow_lists
from lowtide.tf.known import Inferred, Known
from lowtide.tf.trips import passes_through, trip_count
from lowtide.tf.values import computed

LOOPS = frozenset({"While", "StatelessWhile"})
BRANCHES = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
CALLS = frozenset({"PartitionedCall", "StatefulPartitionedCall"})
CONTROL_FLOW = LOOPS | BRANCHES | CALLS
_LARGEST_CONSTANT = 64
"""Elements. Loop bounds and shapes are small; larger values are never needed."""


Functions = Mapping[str, Any]


def infer(graph_def: GraphDef, arguments: Mapping[str, Known], functions: Functions) -> Inferred:
    """Shapes of all tensors of `graph_def`, in topological order, when its placeholders are `arguments`."""
    nodes = {node.name: node for node in graph_def.node}
    stubs: dict[str, list[Known]] = {}
    found = Inferred({})
    pending = [node for node in graph_def.node if node.op in CONTROL_FLOW]
    while True:
        tensors = _infer_flat(graph_def, arguments, stubs)
        learned = follow_lists(graph_def, tensors, stubs) or bound(graph_def, tensors, stubs, found)
        if learned:
            stubs.update(learned)
            continue
        ready = next((n for n in pending if _inputs_settled(n, nodes, stubs)), None)
        if ready is None:
            found.tensors = tensors
            return found
        pending.remove(ready)
        given = [tensors[edge] for edge in edges(ready) if edge.output != CONTROL]
        stubs[ready.name] = _infer_control_flow(ready, given, functions, found)


def _inputs_settled(node: Any, nodes: Mapping[str, Any], stubs: Mapping[str, object]) -> bool:
    """Whether no unresolved loop or branch stands before `node`."""
    seen, frontier = {node.name}, [edge.node for edge in edges(node)]
    while frontier:
        name = frontier.pop()
        if name in seen or name in stubs:
            continue
        if nodes[name].op in CONTROL_FLOW:
            return False
        seen.add(name)
        frontier.extend(edge.node for edge in edges(nodes[name]))
    return True


def _infer_flat(
    graph_def: GraphDef, arguments: Mapping[str, Known], stubs: Mapping[str, Sequence[Known]]
) -> dict[Tensor, Known]:
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(_prepared(graph_def, arguments, stubs), name="")
    tensors = {}
    for node in graph_def.node:
        if node.name in stubs:
            tensors.update({Tensor(node.name, i): known for i, known in enumerate(stubs[node.name])})
            continue
        given = arguments.get(node.name)
        for output in graph.get_operation_by_name(node.name).outputs:
            known = _read(output)
            if given is not None:
                known = replace(given, dims=given.dims if given.dims is not None else known.dims)
            elif known.value is None and _may_be_computed(known):
                known = replace(known, value=_computed(node, known, tensors))
            tensors[Tensor(node.name, output.value_index)] = known
    return tensors


def _may_be_computed(known: Known) -> bool:
    return known.dtype in ("int32", "int64") and known.complete and known.elements <= _LARGEST_CONSTANT


def _computed(node: Any, known: Known, tensors: Mapping[Tensor, Known]) -> Any:
    value = computed(node, [tensors[edge].value for edge in edges(node) if edge.output != CONTROL])
    return value if value is not None and value.shape == known.dims else None


def _read(tensor: Any) -> Known:
    dims = None if tensor.shape.rank is None else tuple(tensor.shape.as_list())
    known = Known(tensor.dtype.base_dtype.name, dims)
    small = dims is not None and None not in dims and math.prod(d or 0 for d in dims) <= _LARGEST_CONSTANT
    if small and (tensor.dtype.base_dtype.is_integer or tensor.dtype.base_dtype.is_bool):
        return replace(known, value=tf.get_static_value(tensor))
    return known


def _prepared(
    graph_def: GraphDef, arguments: Mapping[str, Known], stubs: Mapping[str, Sequence[Known]]
) -> GraphDef:
    """A copy to import: placeholders with full shapes, handles of the right type, stubs for control flow."""
    prepared = GraphDef()
    prepared.versions.CopyFrom(graph_def.versions)
    prepared.library.CopyFrom(graph_def.library)
    for node in graph_def.node:
        if node.name in stubs:
            for index, known in enumerate(stubs[node.name]):
                _add_stand_in(prepared, _stub_name(node.name, index), known)
        elif node.name in arguments and node.op in ("Placeholder", "_Arg"):
            _add_stand_in(prepared, node.name, arguments[node.name])
        else:
            copied = prepared.node.add()
            copied.CopyFrom(node)
            copied.attr.pop("_class", None)
            copied.device = ""
            if stubs:
                _rewire(copied, stubs)
    return prepared


def _stub_name(node: str, index: int) -> str:
    return f"{node}/lowtide_result_{index}"


def _rewire(node: Any, stubs: Mapping[str, object]) -> None:
    inputs = []
    for text in node.input:
        edge = parse_tensor(text)
        if edge.node not in stubs:
            inputs.append(text)
        elif edge.output != CONTROL:
            inputs.append(_stub_name(edge.node, edge.output))
    del node.input[:]
    node.input.extend(inputs)


def _add_stand_in(graph_def: GraphDef, name: str, known: Known) -> None:
    node = graph_def.node.add()
    node.name = name
    if known.dtype == "resource" and known.element is not None:
        node.op = "VarHandleOp"
        node.attr["dtype"].type = tf.as_dtype(known.element.dtype).as_datatype_enum
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(known.element.dims).as_proto())
        node.attr["shared_name"].s = name.encode()
    elif known.dtype == "variant" and known.element is not None:
        element_shape = _add_constant(graph_def, f"{name}/lowtide_element", _as_shape_tensor(known.element.dims))
        most = _add_constant(graph_def, f"{name}/lowtide_most", np.int32(-1))
        node.op = "EmptyTensorList"
        node.input.extend([element_shape, most])
        node.attr["element_dtype"].type = tf.as_dtype(known.element.dtype).as_datatype_enum
        node.attr["shape_type"].type = tf.int32.as_datatype_enum
    elif known.value is not None:
        _fill_constant(node, np.asarray(known.value, tf.as_dtype(known.dtype).as_numpy_dtype))
    else:
        node.op = "Placeholder"
        node.attr["dtype"].type = tf.as_dtype(known.dtype).as_datatype_enum
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(known.dims).as_proto())


def _add_constant(graph_def: GraphDef, name: str, value: Any) -> str:
    node = graph_def.node.add()
    node.name = name
    _fill_constant(node, value)
    return name


def _fill_constant(node: Any, value: Any) -> None:
    node.op = "Const"
    node.attr["dtype"].type = tf.as_dtype(value.dtype).as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(value))


def _as_shape_tensor(dims: tuple[int | None, ...] | None) -> Any:
    if dims is None:
        return np.int32(-1)
    return np.array([-1 if d is None else d for d in dims], np.int32)


# --- loops, branches, calls ---


def _infer_control_flow(node: Any, given: Sequence[Known], functions: Functions, found: Inferred) -> list[Known]:
    if node.op in LOOPS:
        return _infer_loop(node, given, functions, found)
    if node.op in CALLS:
        return _infer_body(node.attr["f"].func.name, given, functions, found)
    names = branch_names(node)
    arms = [_infer_arm(name, [_in_arm(k, arm) for k in given[1:]], functions, found) for arm, name in enumerate(names)]
    return [_larger(outputs) for outputs in zip(*arms, strict=True)]


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


def _larger(outputs: Sequence[Known]) -> Known:
    """Of what the branches return, the one with most elements: a bound, exact when they agree."""
    if outputs[0].dtype == "variant":
        held = [known for known in outputs if known.element is not None]
        return replace(held[0], arms=tuple(outputs)) if held else outputs[0]
    complete = [known for known in outputs if known.complete]
    if len(complete) < len(outputs):
        return replace(outputs[0], dims=outputs[0].dims if not complete else complete[0].dims, value=None)
    return replace(max(complete, key=lambda known: known.elements), value=None)
