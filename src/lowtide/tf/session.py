"""A v1 graph and the fetches of a Session.run become a Program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from lowtide.errors import NotCapturable
from lowtide.program import ITEM_BYTES, Program, Resident
from lowtide.tf import compat
from lowtide.tf.build import Probe, build_program
from lowtide.tf.capture import versions
from lowtide.tf.compat import GraphDef
from lowtide.tf.compiled import with_compiled_calls
from lowtide.tf.graphs import edges, fetched, in_order
from lowtide.tf.known import Known
from lowtide.tf.labels import Labels, LayerNames
from lowtide.tf.lines import probe_batches
from lowtide.tf.shapes import infer

_VARIABLES = frozenset({"VariableV2", "Variable", "VarHandleOp"})


def capture_session(session: Any, fetches: Any, feeds: Mapping[Any, Any], asked: Sequence[int] = ()) -> Program:
    """The Program of `session.run(fetches, feeds)`, at the batch that is fed and those that are asked about."""
    graph = session.graph
    fed = {graph.as_graph_element(key): np.asarray(value) for key, value in feeds.items()}
    wanted = [graph.as_graph_element(fetch) for fetch in fetched(fetches)]
    outputs = [item for item in wanted if not isinstance(item, tf.Operation)]
    effects = [item.name for item in wanted if isinstance(item, tf.Operation)]
    roots = [*effects, *(t.op.name for t in outputs)]
    definition = _pruned(graph.as_graph_def(), roots, {t.op.name for t in fed})
    optimized = compat.optimize_graph(definition, graph, [*roots, *(t.op.name for t in fed)])
    rank = {node.name: i for i, node in enumerate(definition.node)}
    ordered = in_order(optimized.node, rank)
    del optimized.node[:]
    optimized.node.extend(ordered)
    batch = next((int(value.shape[0]) for value in fed.values() if value.ndim), 1)
    functions = {f.signature.name: f for f in optimized.library.function}

    def probed(sizes: Sequence[int]) -> list[Probe]:
        return [Probe(size, infer(optimized, _arguments(fed, batch, size), functions)) for size in sizes]

    try:
        probes = probed(_probes(fed, batch, asked))
    except ValueError:  # some batch does not go through the step, such as an odd one through a split in two: no law
        probes = probed([batch])
    program = build_program(
        optimized,
        probes,
        inputs=[t.op.name for t in fed],
        outputs=[t.name for t in outputs],
        keep=effects,
        labels=Labels(graph, LayerNames(())),
        batch=batch,
    )
    program = replace(program, batch=batch, residents=_residents(program), name="session", versions=versions())
    return with_compiled_calls(program, optimized)


def _pruned(graph_def: GraphDef, roots: list[str], fed: set[str]) -> GraphDef:
    """Only what the fetches need; what is fed becomes a placeholder."""
    nodes = {node.name: node for node in graph_def.node}
    needed: set[str] = set()
    frontier = list(roots) + sorted(fed)
    while frontier:
        name = frontier.pop()
        if name in needed:
            continue
        if name not in nodes:
            raise NotCapturable(f"the fetch {name!r} is not in the session's graph")
        needed.add(name)
        if name not in fed:
            frontier.extend(edge.node for edge in edges(nodes[name]))
    result = GraphDef()
    result.versions.CopyFrom(graph_def.versions)
    result.library.CopyFrom(graph_def.library)
    for node in graph_def.node:
        if node.name in needed:
            copied = result.node.add()
            copied.CopyFrom(node)
            if node.name in fed and node.op != "Placeholder":
                copied.op = "Placeholder"
                del copied.input[:]
    return result


def _probes(fed: Mapping[Any, Any], batch: int, asked: Sequence[int]) -> tuple[int, ...]:
    """Several batch sizes when every fed tensor leaves its batch open, else the one that is fed."""
    opened = [t.shape.rank is None or (t.shape.rank > 0 and t.shape[0] is None) for t, v in fed.items() if v.ndim]
    return probe_batches(batch, asked) if opened and all(opened) else (batch,)


def _arguments(fed: Mapping[Any, Any], batch: int, size: int) -> dict[str, Known]:
    arguments = {}
    for tensor, value in fed.items():
        dims = tuple(size if i == 0 and d == batch else d for i, d in enumerate(value.shape))
        arguments[tensor.op.name] = Known(tensor.dtype.base_dtype.name, dims)
    return arguments


def _residents(program: Program) -> tuple[Resident, ...]:
    """The variables of a v1 graph are nodes of it: by what the step does with them."""
    used: dict[int, set[str]] = {}
    for op in program.ops:
        for value in op.inputs:
            used.setdefault(value, set()).add(op.phase)
    residents = []
    for op in program.ops:
        if op.kind in _VARIABLES:
            value = op.outputs[0]
            category = "parameters" if used.get(value, set()) - {"update"} else "optimizer state"
            dims, dtype = op.attrs.get("shape"), str(op.attrs.get("dtype"))
            if isinstance(dims, tuple):
                size = int(np.prod(dims, dtype=np.int64)) * ITEM_BYTES[dtype]
                residents.append(Resident(op.name, category, size, value, op.layer, op.source))
    return tuple(residents)
