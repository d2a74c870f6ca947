"""A GraphDef and its shapes at a few batch sizes -> Program. Reads protos, runs nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import tensorflow as tf

from lowtide.ops import (
    BRANCHES,
    HALVES,
    LOOPS,
    OWN_KERNEL,
    SCRATCH_OF_OWN_KERNELS,
    WANTED_ATTRIBUTES,
    WANTS_CONSTANTS,
    rule_of,
)
from lowtide.program import UNLISTED, Dim, Note, Op, Program, Value
from lowtide.tf import compat
from lowtide.tf.compat import GraphDef
from lowtide.tf.compiled import COMPILED
from lowtide.tf.graphs import CONTROL, Tensor, edges, in_order, parse_tensor
from lowtide.tf.known import Inferred, Known
from lowtide.tf.labels import Labels
from lowtide.tf.lines import fit_nearby, fit_shape
from lowtide.tf.phases import phases
from lowtide.tf.shapes import CALLS, branch_names


class Probe(NamedTuple):
    """What shape inference found at one batch size."""

    batch: int
    inferred: Inferred


MUST_COMPILE = "_XlaMustCompile"
"""The attribute of a call to a function with `jit_compile=True`."""


def build_program(
    graph_def: GraphDef,
    probes: Sequence[Probe],
    inputs: Sequence[str],
    outputs: Sequence[str],
    keep: Sequence[str],
    labels: Labels,
    batch: int,
    listed: Mapping[str, int] | None = None,
) -> Program:
    """The Program of `graph_def`, whose nodes are in topological order; `listed` is where TensorFlow lists them."""
    functions = {function.signature.name: function for function in graph_def.library.function}
    program = _Builder(functions, labels, batch).build(graph_def.node, probes, inputs, outputs, keep)
    if listed is None:
        return program
    return replace(program, ops=tuple(replace(op, position=listed.get(op.name, UNLISTED)) for op in program.ops))


class _Builder:
    """Builds one graph; bodies of its loops and branches go through a builder of their own.

    `phase` is that of the op whose body this is. Inside a backward or update op all is of its phase.
    """

    def __init__(self, functions: Mapping[str, Any], labels: Labels, batch: int, phase: str = "forward") -> None:
        self._functions = functions
        self._labels = labels
        self._batch = batch
        self._phase = phase
        self._bodies: list[Program] = []
        self._notes: list[Note] = []

    def build(
        self,
        nodes: Sequence[Any],
        probes: Sequence[Probe],
        inputs: Sequence[str],
        outputs: Sequence[str],
        keep: Sequence[str],
    ) -> Program:
        self._probes = probes
        index = {node.name: i for i, node in enumerate(nodes)}
        values, ids = self._values(nodes)
        phase = phases(nodes) if self._phase == "forward" else dict.fromkeys(index, self._phase)
        ops = [self._op(node, ids, index, phase[node.name]) for node in nodes]
        _add_pooling_workspaces(ops, values)
        return Program(
            ops=tuple(ops),
            values=tuple(values),
            inputs=tuple(ids[Tensor(name, 0)] for name in inputs),
            outputs=tuple(ids[parse_tensor(name)] for name in outputs),
            keep=tuple(index[name] for name in keep),
            functions=tuple(self._bodies),
            notes=tuple(self._notes),
        )

    def _values(self, nodes: Sequence[Any]) -> tuple[list[Value], dict[Tensor, int]]:
        per_node: dict[str, list[int]] = {}
        for tensor in self._probes[0].inferred.tensors:
            per_node.setdefault(tensor.node, []).append(tensor.output)
        values: list[Value] = []
        ids: dict[Tensor, int] = {}
        for node in nodes:
            for output in sorted(per_node.get(node.name, ())):
                ids[Tensor(node.name, output)] = len(values)
                values.append(self._value(node, Tensor(node.name, output)))
        return values, ids

    def _value(self, node: Any, tensor: Tensor) -> Value:
        known = [probe.inferred.tensors[tensor] for probe in self._probes]
        dims, batches = [k.dims for k in known], [probe.batch for probe in self._probes]
        shape = fit_shape(dims, batches)
        if shape is None and known[0].dtype not in ("resource", "variant"):
            shape = fit_nearby(dims, batches)
            if shape is None:
                self._notes.append(Note(f"{node.op} {node.name}", "unknown", 0, "its shape depends on the data"))
            else:
                size = Value(known[0].dtype, shape).bytes(self._batch)
                self._notes.append(Note(f"{node.op} {node.name}", "assumed", size, _no_law("size", batches)))
        return Value(known[0].dtype, shape)

    def _op(self, node: Any, ids: Mapping[Tensor, int], index: Mapping[str, int], phase: str) -> Op:
        sources = edges(node)
        label = self._labels.of(node.name)
        if node.op in BRANCHES:
            self._notes.append(Note(f"{node.op} {node.name}", "bounded", 0, "the branch with most bytes is counted"))
        if node.name in self._probes[0].inferred.bounded:
            size = sum(self._value(node, tensor).bytes(self._batch) for tensor in ids if tensor.node == node.name)
            why = "its shape depends on the data: counted at its largest"
            self._notes.append(Note(f"{node.op} {node.name}", "bounded", size, why))
        if rule_of(node.op) is None:
            why = "no table row: its outputs are counted, what it needs while it runs is not"
            self._notes.append(Note(f"{node.op} {node.name}", "assumed", 0, why))
        attrs = self._attributes(node, sources)
        if node.op in CALLS and MUST_COMPILE in node.attr and node.attr[MUST_COMPILE].b:
            attrs[COMPILED] = node.attr["f"].func.name
            why = "XLA compiles it, as Keras has it do for a convolution in groups: counted as TensorFlow's own ops"
            self._notes.append(Note(f"{node.op} {node.name}", "assumed", 0, f"{why}; XLA may need several times that"))
        count = 0
        while Tensor(node.name, count) in ids:
            count += 1
        return Op(
            name=node.name,
            kind=node.op,
            inputs=tuple(ids[e] for e in sources if e.output != CONTROL),
            outputs=tuple(ids[Tensor(node.name, i)] for i in range(count)),
            after=tuple(sorted({index[e.node] for e in sources if e.output == CONTROL})),
            attrs=attrs,
            layer=label.layer,
            source=label.source,
            phase=phase,
            bodies=self._bodies_of(node, phase),
            trips=self._trips(node),
        )

    def _attributes(self, node: Any, sources: Sequence[Tensor]) -> dict[str, object]:
        attrs: dict[str, object] = {
            name: _plain(node.attr[name]) for name in WANTED_ATTRIBUTES.get(node.op, ()) if name in node.attr
        }
        if node.op in SCRATCH_OF_OWN_KERNELS and "T" in node.attr:
            dtype = tf.as_dtype(node.attr["T"].type).name
            if dtype in HALVES and not compat.onednn_computes(dtype):
                attrs[OWN_KERNEL] = True
        for position in WANTS_CONSTANTS.get(node.op, ()):
            data = [e for e in sources if e.output != CONTROL]
            if position < len(data):
                found = {_hashable(p.inferred.tensors[data[position]]) for p in self._probes}
                if len(found) == 1 and (value := found.pop()) is not None:
                    attrs[f"input_{position}"] = value
        return attrs

    def _bodies_of(self, node: Any, phase: str) -> tuple[int, ...]:
        return tuple(self._body(name, phase) for name in body_names(node))

    def _body(self, name: str, phase: str) -> int:
        function = self._functions[name]
        graph_def, names = compat.function_as_graph(function)
        nodes = in_order(graph_def.node, {node.name: i for i, node in enumerate(graph_def.node)})
        probes = [Probe(p.batch, p.inferred.bodies[name]) for p in self._probes]
        builder = _Builder(self._functions, self._labels, self._batch, phase)
        body = builder.build(
            nodes,
            probes,
            [arg.name for arg in function.signature.input_arg],
            [names[function.ret[out.name]] for out in function.signature.output_arg],
            list(function.control_ret.values()),
        )
        self._notes.extend(builder._notes)
        self._bodies.append(body)
        return len(self._bodies) - 1

    def _trips(self, node: Any) -> Dim | None:
        if node.op not in LOOPS:
            return None
        counts = [probe.inferred.trips[node.name] for probe in self._probes]
        dims, batches = [(count,) for count in counts], [probe.batch for probe in self._probes]
        shape = fit_shape(dims, batches)
        if shape is None:
            shape = fit_nearby(dims, batches)
            if shape is None:
                self._notes.append(Note(f"{node.op} {node.name}", "unknown", 0, "its trip count depends on the data"))
                return None
            self._notes.append(Note(f"{node.op} {node.name}", "assumed", 0, _no_law("trip count", batches)))
        return shape[0]


def _no_law(what: str, batches: Sequence[int]) -> str:
    right = " and ".join(map(str, sorted(batches)[-2:]))
    return f"its {what} is no line in the batch: right at batches {right}, a line beyond them"


def body_names(node: Any) -> list[str]:
    """The functions that a loop, a branch or a call runs, as `Op.bodies` has them."""
    if node.op in LOOPS:
        return [node.attr["cond"].func.name, node.attr["body"].func.name]
    if node.op in BRANCHES:
        return list(branch_names(node))
    return [node.attr["f"].func.name] if node.op in CALLS else []


_POOL_OF_GRADIENT = {"MaxPoolGrad": "MaxPool", "MaxPool3DGrad": "MaxPool3D"}


def _add_pooling_workspaces(ops: list[Op], values: list[Value]) -> None:
    """oneDNN's MaxPool leaves its gradient a note of where each maximum was: a byte for each output."""
    maker = {value: index for index, op in enumerate(ops) for value in op.outputs}
    for index, op in enumerate(ops):
        pooled = maker.get(op.inputs[1]) if op.kind in _POOL_OF_GRADIENT else None
        if pooled is not None and ops[pooled].kind == _POOL_OF_GRADIENT[op.kind]:
            pool = ops[pooled]
            if len(pool.outputs) == 1:
                values.append(Value("uint8", values[pool.outputs[0]].shape))
                ops[pooled] = pool = replace(pool, outputs=(*pool.outputs, len(values) - 1))
            ops[index] = replace(op, inputs=(*op.inputs, pool.outputs[1]))


def _hashable(known: Known) -> int | tuple[int, ...] | None:
    if known.value is None:
        return None
    listed = known.value.tolist()
    return tuple(listed) if isinstance(listed, list) and all(isinstance(x, int) for x in listed) else (
        listed if isinstance(listed, int) else None
    )


def _plain(attr: Any) -> object:
    kind = attr.WhichOneof("value")
    if kind == "list":
        return tuple(attr.list.i) or tuple(s.decode() for s in attr.list.s)
    if kind == "s":
        return attr.s.decode(errors="replace")
    if kind == "shape":
        return None if attr.shape.unknown_rank else tuple(dim.size for dim in attr.shape.dim)
    if kind == "type":
        return tf.as_dtype(attr.type).name
    return getattr(attr, kind) if kind in ("i", "f", "b") else None
