"""A traced training step becomes a Program, and stays runnable.

Optimize, then plan, then freeze: Grappler runs once, here, offline; the Program is made from what comes out, and
what `lowtide.tf.rewrite` executes is that and nothing else.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from lowtide.errors import NotCapturable
from lowtide.program import ITEM_BYTES, Program, Resident
from lowtide.tf import compat
from lowtide.tf.branch_shapes import hand_over_shapes
from lowtide.tf.build import Probe, build_program
from lowtide.tf.compat import GraphDef
from lowtide.tf.compiled import with_compiled_calls
from lowtide.tf.devices import on_first_device
from lowtide.tf.graphs import in_order
from lowtide.tf.known import Inferred, Known
from lowtide.tf.labels import Labels, LayerNames
from lowtide.tf.shapes import infer
from lowtide.tf.turns import with_turns


@dataclass(frozen=True)
class Step:
    """A captured step: the Program for the planner, and what it takes to run the same graph.

    `arguments` and `captured` name the placeholders of `graph_def`; `captured` goes with the tensors outside.
    `results` has the structure of what the function returns.
    """

    program: Program
    graph_def: GraphDef
    arguments: tuple[str, ...]
    captured: tuple[tuple[str, Any], ...]
    outputs: tuple[str, ...]
    control_outputs: tuple[str, ...]
    results: Any = None

    def pack(self, flat: Sequence[Any]) -> Any:
        """The flat outputs in the structure that the user's function returns them in."""
        if self.results is None:
            return None
        return tf.nest.pack_sequence_as(self.results, list(flat), expand_composites=True)


@dataclass(frozen=True)
class Trace:
    """The step as traced for one batch size, and what its flat tensor arguments look like there."""

    batch: int
    concrete: Any
    example: Sequence[Known]


@dataclass(frozen=True)
class VariableFact:
    """What the framework says a variable is; `layer` is the one it serves, also for an optimizer's slot."""

    name: str
    category: str
    layer: str = ""


def capture(
    traces: Sequence[Trace],
    batch: int,
    layers: LayerNames | None = None,
    variables: Mapping[int, VariableFact] | None = None,
) -> Step:
    """The step behind one or more traces of the same function.

    Sizes are fitted through all traces whose graphs have the same nodes. `variables` tells of variables by the
    identity of their handle.
    """
    concrete = traces[0].concrete
    graph = concrete.graph
    captured = compat.captures(concrete)
    arguments = graph.inputs[: len(graph.inputs) - len(captured)]
    control_outputs = [op.name for op in compat.control_outputs(graph)]
    optimized, listed = _optimized(concrete)
    probes = [Probe(traces[0].batch, _inferred(optimized, traces[0]))]
    for trace in traces[1:]:
        same = optimized if trace.concrete is concrete else _optimized(trace.concrete).graph_def
        if same is optimized or _names(same) == _names(optimized):
            probes.append(Probe(trace.batch, _inferred(same, trace)))
    if len(probes) == 2:  # two points always make a line; without a third nothing checks it
        probes = probes[:1]
    program = build_program(
        optimized,
        probes,
        inputs=[t.op.name for t in graph.inputs],
        outputs=[t.name for t in graph.outputs],
        keep=control_outputs,
        labels=Labels(graph, layers or LayerNames(())),
        batch=batch,
        listed=listed,
    )
    residents = _residents(captured, program, variables or {}, layers or LayerNames(()))
    program = replace(program, batch=batch, residents=residents, name=graph.name, versions=versions())
    program = with_turns(program, optimized, _whole_numbers(captured))
    program = with_compiled_calls(program, optimized)
    values = program.inputs[len(program.inputs) - len(captured) :]
    homes = {value: getattr(outside, "device", "") for value, (outside, _) in zip(values, captured, strict=True)}
    program = on_first_device(program, optimized.node, homes)
    return Step(
        program,
        optimized,
        tuple(t.op.name for t in arguments),
        tuple((inside.op.name, outside) for outside, inside in captured),
        tuple(t.name for t in graph.outputs),
        tuple(control_outputs),
        concrete.structured_outputs,
    )


def _whole_numbers(captured: Sequence[tuple[Any, Any]]) -> dict[str, int]:
    """What the variables hold that have just one whole number in them, by the name of their input."""
    found = {}
    for outside, inside in captured:
        kept = _captured_type(outside).element
        if kept is not None and kept.dims == () and kept.dtype in ("int32", "int64"):
            # It may not be an eager one, or have nothing in it yet.
            with contextlib.suppress(TypeError, tf.errors.OpError):
                number = tf.raw_ops.ReadVariableOp(resource=outside, dtype=tf.as_dtype(kept.dtype))
                found[inside.op.name] = int(number)
    return found


def as_traced(concrete: Any, program: Program) -> Step:
    """The step with its graph as it was traced, which is what XLA takes."""
    graph = concrete.graph
    captured = compat.captures(concrete)
    return Step(
        program,
        graph.as_graph_def(),
        tuple(t.op.name for t in graph.inputs[: len(graph.inputs) - len(captured)]),
        tuple((inside.op.name, outside) for outside, inside in captured),
        tuple(t.name for t in graph.outputs),
        tuple(op.name for op in compat.control_outputs(graph)),
    )


class _Optimized(NamedTuple):
    """What Grappler makes of a trace, in the order it was traced, and where Grappler lists each node: much as when
    TensorFlow runs the function, but for some of the nodes without inputs."""

    graph_def: GraphDef
    listed: dict[str, int]


def _optimized(concrete: Any) -> _Optimized:
    graph = concrete.graph
    traced = graph.as_graph_def()
    keep = [t.op.name for t in (*graph.inputs, *graph.outputs)]
    keep += [op.name for op in compat.control_outputs(graph)]
    optimized = compat.optimize_graph(traced, graph, keep)
    hand_over_shapes(optimized, [t.name for t in graph.outputs])
    listed = {node.name: index for index, node in enumerate(optimized.node)}
    ordered = in_order(optimized.node, {node.name: index for index, node in enumerate(traced.node)})
    del optimized.node[:]
    optimized.node.extend(ordered)
    return _Optimized(optimized, listed)


def _names(graph_def: GraphDef) -> list[tuple[str, str]]:
    return sorted((node.name, node.op) for node in graph_def.node)


def _inferred(graph_def: GraphDef, trace: Trace) -> Inferred:
    captured = compat.captures(trace.concrete)
    inputs = trace.concrete.graph.inputs
    arguments = inputs[: len(inputs) - len(captured)]
    if len(arguments) != len(trace.example):
        raise NotCapturable(
            f"the step has {len(arguments)} tensor arguments and was called with {len(trace.example)}"
        )
    given = {t.op.name: _filled(t, known) for t, known in zip(arguments, trace.example, strict=True)}
    fixed = {inside.op.name: _captured_type(outside) for outside, inside in captured}
    functions = {f.signature.name: f for f in graph_def.library.function}
    return infer(graph_def, {**given, **fixed}, functions)


def versions() -> dict[str, str]:
    return {"tensorflow": tf.__version__, "keras": keras.__version__, "numpy": np.__version__}


def _filled(tensor: Any, example: Known) -> Known:
    """The argument as traced, its open dimensions as in the example."""
    if tensor.shape.rank is None or example.dims is None:
        return example
    dims = zip(tensor.shape.as_list(), example.dims, strict=True)
    return replace(example, dims=tuple(given if dim is None else dim for dim, given in dims))


def _captured_type(outside: Any) -> Known:
    if outside.dtype == tf.resource:
        variable = compat.variable_type(outside)
        return Known("resource", (), Known(*variable) if variable else None)
    dims = None if outside.shape.rank is None else tuple(outside.shape.as_list())
    small = hasattr(outside, "numpy") and outside.dtype.is_integer and outside.shape.num_elements() <= 64
    return Known(outside.dtype.name, dims, value=outside.numpy() if small else None)


def _residents(
    captured: Sequence[tuple[Any, Any]],
    program: Program,
    variables: Mapping[int, VariableFact],
    layers: LayerNames,
) -> tuple[Resident, ...]:
    """Variables and tensors the step closes over, by what the framework says or what the step does with them."""
    used_in = _phases_of_use(program)
    values = program.inputs[len(program.inputs) - len(captured) :]
    residents = []
    for (outside, inside), value in zip(captured, values, strict=True):
        fact = variables.get(id(outside))
        known = _captured_type(outside)
        if known.dtype == "resource":
            if known.element is None or not known.element.complete:
                continue  # a table, an iterator: not bytes of a tensor
            updated_only = used_in.get(value, set()) <= {"update"}
            category = fact.category if fact else "optimizer state" if updated_only else "parameters"
            size = _bytes(known.element)
        else:
            category, size = "inputs", _bytes(known)
        name = fact.name if fact else inside.op.name
        layer = fact.layer if fact else layers.layer_of(name)
        source, address = layers.source_of(layer), compat.address_of(outside)
        residents.append(Resident(name, category, size, value, layer, source, address))
    return tuple(residents)


def _bytes(known: Known) -> int:
    return math.prod(d or 0 for d in known.dims or ()) * ITEM_BYTES[known.dtype]


def _phases_of_use(program: Program) -> dict[int, set[str]]:
    used: dict[int, set[str]] = {}
    for op in program.ops:
        for value in op.inputs:
            used.setdefault(value, set()).add(op.phase)
    return used
