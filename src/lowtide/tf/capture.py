"""A traced training step becomes a Program, and stays runnable.

Optimize, then plan, then freeze: Grappler runs once, here, offline; the Program is made from what comes out, and
what `lowtide.tf.rewrite` executes is that and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from lowtide.program import Program, Resident
from lowtide.tf import compat
from lowtide.tf.build import Probe, build_program
from lowtide.tf.graphs import in_order
from lowtide.tf.labels import Labels, LayerNames, phases
from lowtide.tf.shapes import Known, infer

PROBE_BATCHES = (2, 3, 7)
"""Two give a line, the third checks it."""


@dataclass(frozen=True)
class Step:
    """A captured step: the Program for the planner, and what it takes to run the same graph.

    `arguments` and `captured` name the placeholders of `graph_def`; `captured` goes with the tensors outside.
    """

    program: Program
    graph_def: compat.GraphDef
    arguments: tuple[str, ...]
    captured: tuple[tuple[str, Any], ...]
    outputs: tuple[str, ...]
    control_outputs: tuple[str, ...]


def capture(
    concrete: Any,
    example: Sequence[Known],
    batch: int,
    layers: LayerNames | None = None,
    categories: Mapping[int, str] | None = None,
) -> Step:
    """The step behind a ConcreteFunction.

    `example` is what the script really passes, flat, one for each tensor argument: it fills in the dimensions that
    the trace leaves open. `categories` names the category of variables by the id of their handle.
    """
    graph = concrete.graph
    captured = compat.captures(concrete)
    arguments = graph.inputs[: len(graph.inputs) - len(captured)]
    control_outputs = [op.name for op in compat.control_outputs(graph)]
    traced = graph.as_graph_def()
    keep = [t.op.name for t in (*graph.inputs, *graph.outputs)] + control_outputs
    optimized = compat.optimize_graph(traced, graph, keep)
    rank = {node.name: index for index, node in enumerate(traced.node)}
    ordered = in_order(optimized.node, rank)
    del optimized.node[:]
    optimized.node.extend(ordered)

    fixed = {inside.op.name: _captured_type(outside) for outside, inside in captured}
    open_batch = any(_leading_is_open(tensor) for tensor in arguments)
    probes = []
    for size in PROBE_BATCHES if open_batch else (batch,):
        given = {t.op.name: _at_batch(t, known, size) for t, known in zip(arguments, example, strict=True)}
        functions = {f.signature.name: f for f in optimized.library.function}
        probes.append(Probe(size, infer(optimized, {**given, **fixed}, functions)))
    program = build_program(
        optimized,
        probes,
        inputs=[t.op.name for t in graph.inputs],
        outputs=[t.name for t in graph.outputs],
        keep=control_outputs,
        labels=Labels(graph, layers or LayerNames(())),
    )
    residents = _residents(captured, program, categories or {})
    program = replace(program, batch=batch, residents=residents, name=graph.name, versions=versions())
    return Step(
        program,
        optimized,
        tuple(t.op.name for t in arguments),
        tuple((inside.op.name, outside) for outside, inside in captured),
        tuple(t.name for t in graph.outputs),
        tuple(control_outputs),
    )


def versions() -> dict[str, str]:
    return {"tensorflow": tf.__version__, "keras": keras.__version__, "numpy": np.__version__}


def _leading_is_open(tensor: Any) -> bool:
    return bool(tensor.shape.rank) and tensor.shape[0] is None


def _at_batch(tensor: Any, example: Known, batch: int) -> Known:
    """What the argument is at `batch`: its open leading dimension is the batch, other open ones as in the example."""
    if tensor.shape.rank is None or example.dims is None:
        return replace(example, value=None)
    dims = [given if dim is None else dim for dim, given in zip(tensor.shape.as_list(), example.dims, strict=True)]
    if _leading_is_open(tensor):
        dims[0] = batch
        return replace(example, dims=tuple(dims), value=None)
    return replace(example, dims=tuple(dims))


def _captured_type(outside: Any) -> Known:
    if outside.dtype == tf.resource:
        variable = compat.variable_type(outside)
        return Known("resource", (), Known(*variable) if variable else None)
    dims = None if outside.shape.rank is None else tuple(outside.shape.as_list())
    small = hasattr(outside, "numpy") and outside.dtype.is_integer and outside.shape.num_elements() <= 64
    return Known(outside.dtype.name, dims, value=outside.numpy() if small else None)


def _residents(
    captured: Sequence[tuple[Any, Any]], program: Program, categories: Mapping[int, str]
) -> tuple[Resident, ...]:
    """Variables and tensors the step closes over, by what the step does with them."""
    used_in = _phases_of_use(program)
    values = program.inputs[len(program.inputs) - len(captured) :]
    residents = []
    for (outside, inside), value in zip(captured, values, strict=True):
        if outside.dtype == tf.resource:
            kind = compat.variable_type(outside)
            if kind is None or kind[1] is None:
                continue
            size = int(np.prod(kind[1], dtype=np.int64)) * tf.as_dtype(kind[0]).size
            used = used_in.get(value, set())
            category = categories.get(id(outside)) or ("parameters" if used - {"update"} else "optimizer state")
        else:
            size = int(np.prod(outside.shape.as_list(), dtype=np.int64)) * outside.dtype.size
            category = "inputs"
        residents.append(Resident(inside.op.name, category, size, value))
    return tuple(residents)


def _phases_of_use(program: Program) -> dict[int, set[str]]:
    used: dict[int, set[str]] = {}
    for op in program.ops:
        for value in op.inputs:
            used.setdefault(value, set()).add(op.phase)
    return used


__all__ = ["PROBE_BATCHES", "Step", "capture", "phases", "versions"]
