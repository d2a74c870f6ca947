"""A captured step in a fixed order, as something to call: GraphDef in, GraphDef out, nothing edited in place.

The order is held by control edges. Grappler is off for the call, since the graph has been through it already.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

import tensorflow as tf

from lowtide.ops import BRANCHES, LOWERING_ATTRIBUTE, Act, rule_of
from lowtide.plan import Plan, copy_name, in_place
from lowtide.plan.plan import SMALL, bytes_ahead
from lowtide.plan.room import is_all_there_is
from lowtide.program import Program
from lowtide.simulate import Preparation
from lowtide.simulate.interleave import FAR, Ceiling, Loose
from lowtide.simulate.overlap import loosened
from lowtide.tf import compat
from lowtide.tf.build import body_names
from lowtide.tf.capture import Step
from lowtide.tf.compat import GraphDef
from lowtide.tf.graphs import CONTROL, in_order, parse_tensor

GATE = "lowtide_gate"
"""Name of the nodes that several ops wait for together."""


def ordered_graph(graph_def: GraphDef, order: Sequence[int] | None = None, loose: Loose | None = None) -> GraphDef:
    """A copy of `graph_def` that can only run in `order` (indices of its nodes), bodies of loops included.

    With `loose`, which has the order's ops by their place in it, only as far as that says.
    """
    nodes = range(len(graph_def.node)) if order is None else order
    return _executed(graph_def, [(node, 0) for node in nodes], loose)


def planned_graph(graph_def: GraphDef, plan: Plan) -> GraphDef:
    """A copy of `graph_def` that runs a plan: recomputed nodes are nodes of their own, read by what follows them."""
    graph_def = _written_in_place(graph_def, plan.program)
    runs: dict[int, int] = {}
    executions = []
    for position in plan.schedule:
        node = plan.order[position]
        executions.append((node, runs.get(node, 0)))
        runs[node] = runs.get(node, 0) + 1
    program, timeline = plan.program, plan.timeline
    if timeline.peak - timeline.resident < SMALL and plan.budget < FAR * timeline.chunk_peak:
        return _executed(graph_def, executions, None)  # only the whole order is safe
    walled = is_all_there_is(program.chunks, plan.budget)
    ceiling = Ceiling(plan.budget, bytes_ahead(program, timeline.batch, plan.budget), walled)
    loose = loosened(program, timeline.batch, range(len(program.ops)), timeline, ceiling)
    return _executed(graph_def, executions, loose)


def _written_in_place(graph_def: GraphDef, program: Program) -> GraphDef:
    """The nodes, and those of functions, as `lowtide.plan.in_place` lists the ops."""
    result = _without_nodes(graph_def)
    device = graph_def.node[0].device
    result.node.extend(_nodes_in_place(graph_def.node, _writers(program), device, ""))
    functions = {function.signature.name: function for function in result.library.function}
    for name, body in _bodies(graph_def.node, program, functions):
        nodes = _nodes_in_place(functions[name].node_def, _writers(body), "", ":output:0")
        del functions[name].node_def[:]
        functions[name].node_def.extend(nodes)
    return result


def _writers(program: Program) -> set[str]:
    return {op.name for op in program.ops if op.kind == in_place.WRITE}


def _bodies(nodes: Iterable[Any], program: Program, functions: Mapping[str, Any]) -> list[tuple[str, Program]]:
    """The functions that these nodes run and those that they do, innermost first, with the Program of each."""
    by_name = {node.name: node for node in nodes}
    found: dict[str, Program] = {}
    for op in program.ops:
        if not op.bodies or op.name not in by_name:
            continue
        for name, number in zip(body_names(by_name[op.name]), op.bodies, strict=True):
            body = program.functions[number]
            found.update(_bodies(functions[name].node_def, body, functions))
            found[name] = body
    return list(found.items())


def _nodes_in_place(nodes: Sequence[Any], writers: Set[str], device: str, first_output: str) -> list[Any]:
    """Nodes of a graph, or of a function, where tensors have longer names."""
    if not any(in_place.writer_of(node.name) in writers for node in nodes):
        return list(nodes)
    result = GraphDef()
    for name, number in ((in_place.BEGIN, 0), (in_place.STRIDE, 1)):
        constant = result.node.add(name=name, op="Const", device=device)
        constant.attr["dtype"].type = tf.int32.as_datatype_enum
        constant.attr["value"].tensor.CopyFrom(tf.make_tensor_proto([number], tf.int32))
    begin, stride = f"{in_place.BEGIN}{first_output}", f"{in_place.STRIDE}{first_output}"
    for node in nodes:
        if in_place.writer_of(node.name) in writers:
            handle, value, *control = node.input
            writer = result.node.add(name=in_place.writer_of(node.name), op=in_place.WRITE, device=node.device)
            writer.input.extend((handle, begin, begin, stride, value, *control))
            writer.attr["T"].type = node.attr["dtype"].type
            writer.attr["Index"].type = tf.int32.as_datatype_enum
            writer.attr["begin_mask"].i = writer.attr["end_mask"].i = 1  # from the first to the last
            settler = result.node.add(name=node.name, op=in_place.SETTLE, device=node.device)
            settler.input.extend((handle, f"^{writer.name}"))
        else:
            result.node.add().CopyFrom(node)
    return list(result.node)


def _without_nodes(graph_def: GraphDef) -> GraphDef:
    result = GraphDef()
    result.versions.CopyFrom(graph_def.versions)
    result.library.CopyFrom(graph_def.library)
    return result


def _executed(graph_def: GraphDef, executions: Sequence[tuple[int, int]], loose: Loose | None) -> GraphDef:
    """The nodes executed, (index, how often before), in this order and no other, or in the order that is left."""
    result = _without_nodes(graph_def)
    latest: dict[str, str] = {}
    for index, again in executions:
        node = result.node.add()
        node.CopyFrom(graph_def.node[index])
        node.attr.pop("_class", None)
        compat.limit_trips_at_once(node, 1)
        _rewire(node, latest, keep_control=not again)
        if again:
            node.name = latest[graph_def.node[index].name] = copy_name(node.name, again)
    if loose is None:
        _chain(result.node)
    else:
        _hold(list(result.node), loose, result.node.add)
    branching = (node for node in result.node if node.op in BRANCHES and LOWERING_ATTRIBUTE in node.attr)
    branches = {name for node in branching for name in body_names(node)}
    inside = {}
    for n, body in loose.bodies.items() if loose else ():
        compat.limit_trips_at_once(result.node[n], body.at_once)
        inside[body_names(result.node[n])[1]] = body
    for function in result.library.function:
        if function.signature.name in inside:
            _hold(_listed(function), inside[function.signature.name], function.node_def.add)
        else:
            last = _chain(in_function_order(function))
            if function.signature.name in branches and last is not None:
                compat.end_with(function, last)
    return result


def _rewire(node: Any, latest: Mapping[str, str], keep_control: bool) -> None:
    """Read from the latest copy of each source. A copy needs no control edges: its original had them."""
    inputs = []
    for text in node.input:
        source = parse_tensor(text)
        if source.output == CONTROL:
            if keep_control:
                inputs.append(text)
        elif source.node in latest:
            inputs.append(f"{latest[source.node]}:{source.output}")
        else:
            inputs.append(text)
    del node.input[:]
    node.input.extend(inputs)


def in_function_order(function: Any) -> list[Any]:
    """The nodes of a FunctionDef in the order that `lowtide.tf.build` lists them, to be edited in place."""
    arguments = {argument.name for argument in function.signature.input_arg}
    return [node for node in _listed(function) if node.name not in arguments]


def _listed(function: Any) -> list[Any]:
    """As `in_function_order`, with a placeholder for each argument, as the Program of a body has it."""
    flat, _ = compat.function_as_graph(function)
    ranked = in_order(flat.node, {node.name: i for i, node in enumerate(flat.node)})
    own = {node.name: node for node in function.node_def}
    return [own.get(node.name, node) for node in ranked]


def _chain(nodes: Sequence[Any]) -> str | None:
    """A control edge from each node to the next, even where a data edge says the same; the name of the last.

    oneDNN's graph pass merges a convolution's gradient with its bias's unless control edges tell it not to, and merged
    they may form a cycle with the order.
    """
    previous = None
    for node in nodes:
        node.attr.pop("_class", None)
        rule = rule_of(node.op)
        if rule is not None and rule.act is Act.SOURCE:
            continue
        if previous is not None:
            node.input.append(f"^{previous}")
        previous = node.name
    return previous


def _hold(nodes: Sequence[Any], loose: Loose, add: Callable[..., Any]) -> None:
    """The control edges of a partial order; gates are nodes that do nothing."""
    name = lambda n: f"^{nodes[n].name}" if n >= 0 else f"^{GATE}_{~n}"  # noqa: E731
    for node, after in zip(nodes, loose.after, strict=True):
        node.attr.pop("_class", None)
        node.input.extend(map(name, after))
    _keep_apart(nodes)
    for number, waits in enumerate(loose.gates):
        gate = add(name=f"{GATE}_{number}", op="NoOp", device=nodes[-1].device)
        gate.input.extend(map(name, waits))


_PADS = frozenset({"Pad", "PadV2"})


def _keep_apart(nodes: Sequence[Any]) -> None:
    """A control edge from the first to the second of two ops that oneDNN's graph pass would merge.

    It merges a convolution with its bias or padding, and the gradients of its filter and its bias, when both have the
    same control edges. Merged they compute other bits, allocate otherwise, and may form a cycle with the order. Two ops
    of which one waits for the other never have the same.
    """
    kinds = {node.name: node.op for node in nodes}
    gradients: dict[str, str] = {}  # what a gradient of a filter or a bias reads, and the last that read it
    for node in nodes:
        source = node.input[0].partition(":")[0] if node.input else ""
        if node.op == "BiasAddGrad" or "BackpropFilter" in node.op:
            read = node.input[0 if node.op == "BiasAddGrad" else 2].removesuffix(":0")
            _wait_for(node, gradients.get(read, ""))
            gradients[read] = node.name
        elif node.op == "BiasAdd" or kinds.get(source) in _PADS:
            _wait_for(node, source)


def _wait_for(node: Any, other: str) -> None:
    if other and f"^{other}" not in node.input:
        node.input.append(f"^{other}")


_serial = itertools.count(1)


def _with_own_functions(original: GraphDef) -> GraphDef:
    """A copy whose library has names of its own: TensorFlow keeps the first definition it saw of a name."""
    graph_def = GraphDef()
    graph_def.CopyFrom(original)
    suffix = f"_lowtide_{next(_serial)}"
    known = {function.signature.name for function in graph_def.library.function}
    for function in graph_def.library.function:
        function.signature.name += suffix
    bodies = (node for function in graph_def.library.function for node in function.node_def)
    for node in (*graph_def.node, *bodies):
        for attr in node.attr.values():
            for named in (attr.func, *attr.list.func) if attr.HasField("func") or attr.HasField("list") else ():
                if named.name in known:
                    named.name += suffix
    for gradient in graph_def.library.gradient:
        gradient.function_name += suffix if gradient.function_name in known else ""
        gradient.gradient_func += suffix if gradient.gradient_func in known else ""
    return graph_def


def as_function(
    step: Step, graph_def: GraphDef, preparation: Preparation | None = None
) -> Callable[..., list[Any]]:
    """A function of the step's flat tensor arguments that runs `graph_def` as it is and returns the flat outputs.

    The allocator is prepared before the first call, for as long as the function is there.
    """
    captured = [outside for _, outside in step.captured]
    placeholders = (*step.arguments, *(name for name, _ in step.captured))
    wanted = [*step.outputs, *step.control_outputs]
    own = _with_own_functions(graph_def)
    compat.register_functions(own.library)

    @tf.function(autograph=False)  # type: ignore[untyped-decorator]  # TensorFlow ships no types
    def planned(*arguments: Any) -> list[Any]:
        inside = [*arguments, *(compat.capture_into_current_graph(tensor) for tensor in captured)]
        mapping = {f"{name}:0": tensor for name, tensor in zip(placeholders, inside, strict=True)}
        found = tf.graph_util.import_graph_def(own, input_map=mapping, return_elements=wanted, name="")
        results, effects = found[: len(step.outputs)], found[len(step.outputs) :]
        with tf.control_dependencies(effects):
            return [tf.identity(result) for result in results]

    types = {node.name: node.attr for node in own.node}
    specs = [tf.TensorSpec(types[name]["shape"].shape, types[name]["dtype"].type) for name in step.arguments]
    pending = [preparation] if preparation else []
    traced: list[Any] = []

    def call(*arguments: Any) -> list[Any]:
        while pending:  # before tracing, whose few small tensors then find the gaps they need
            weakref.finalize(call, prepare_allocator(pending.pop())).atexit = False
        if not traced:  # one graph for every batch
            traced.append(planned.get_concrete_function(*specs))
        with compat.without_grappler():
            return list(traced[0](*arguments))

    return call


def prepare_allocator(preparation: Preparation) -> Callable[[], None]:
    """Do to the device's allocator what `Preparation` says; what is returned undoes it.

    Eager tensors do where the allocator cannot be called itself; they bring small chunks of their own with them.
    """
    raw = compat.raw_allocator()
    make, drop = raw if raw is not None else (_empty, lambda chunk: None)
    chunks = (compat.allocator_map() or ()) if preparation.side_by_side else ()
    holes = sorted(size for _, size, _, in_use in chunks if not in_use)
    gaps, walls = [make(size) for size in holes[:-1]], []
    for size, count in preparation.small_change:
        for _ in range(count):
            gaps.append(make(size))
            walls.append(make(1))
    while gaps:
        drop(gaps.pop(0))
    if preparation.grow:
        drop(make(preparation.grow))

    def undo() -> None:
        while walls:
            drop(walls.pop())

    return undo


def _empty(size: int) -> Any:
    return tf.raw_ops.Empty(shape=tf.constant([size], tf.int64 if size > 2**31 - 1 else tf.int32), dtype=tf.uint8)
