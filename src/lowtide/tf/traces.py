"""Graphs as they are built: which function, from which line, how large, and why the earlier traces did not do."""

from __future__ import annotations

import functools
import inspect
import time
import weakref
from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any

import tensorflow as tf

from lowtide.program import Source
from lowtide.record import Constant, Trace
from lowtide.tf import compat, compat_watch
from lowtide.tf.labels import is_backward, user_line
from lowtide.tf.nodes import KnownGraphs
from lowtide.tf.phases import assigns
from lowtide.tf.places import calling_line, is_ours, is_users_file, users_stack
from lowtide.tf.steps import Steps
from lowtide.tf.watch import Watch

NODE_BYTES = 1500
"""Host memory of one op of a graph, about: its Python object, its NodeDef, its kernel's description."""
MOST_CONSTANTS = 20
MOST_LOOKED_AT = 20
"""Of the ops that a graph has more, for the line that added them."""
LARGE = 1024


class Traces:
    """Sees every trace."""

    def __init__(self, watch: Watch, graphs: KnownGraphs, steps: Steps) -> None:
        self._watch, self._graphs, self._steps = watch, graphs, steps
        self._owners: dict[int, int] = {}
        self._types: dict[int, list[Any]] = {}
        self._lines: Counter[Source] = Counter()
        self._sessions: dict[int, tuple[int, weakref.ref[Any] | None]] = {}
        self._session_bytes: dict[int, int] = {}
        self._imported_by: dict[int, list[Source]] = {}
        self.count = 0
        self.graph_bytes = 0

    def patch(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def create(function_type: Any, type_context: Any, func_graph: Any, options: Any) -> Any:
            code = getattr(inspect.unwrap(options.python_function), "__code__", None)
            if not self._watch.alive or (code is not None and is_ours(code.co_filename)):
                return original(function_type, type_context, func_graph, options)
            self._watch.attempt("a trace", self._steps.note_tracing)
            before, rss = time.perf_counter(), self._watch.rss()
            concrete = original(function_type, type_context, func_graph, options)
            seconds, grown = time.perf_counter() - before, self._watch.rss() - rss
            self._watch.attempt("a trace", lambda: self._note(concrete, function_type, options, seconds, grown))
            return concrete

        return create

    def _note(self, concrete: Any, function_type: Any, options: Any, seconds: float, grown: int) -> None:
        graph = concrete.graph
        operations = graph.get_operations()
        constants = _constants(operations)
        trains = any(assigns(op.type) or is_backward(op.name) for op in operations)
        self._graphs.add(graph, [c for c in constants if c.bytes >= LARGE], self._steps.calling)
        size = NODE_BYTES * len(operations) + sum(c.bytes for c in constants)
        self.count += 1
        self.graph_bytes += size
        python = options.python_function
        defined = _defined(python)
        cause = self._cause(options, function_type, defined)
        self._watch.keep(defined)
        row = Trace(
            self._watch.now, self._watch.step, str(options.name), defined, calling_line(),
            self._owners.setdefault(id(options.function_cache), len(self._owners)), cause, seconds, len(operations),
            size, sum(c.bytes for c in constants), tuple(constants[:MOST_CONSTANTS]), grown,
            dict(Counter(op.type for op in operations)),
        )  # fmt: skip
        self._watch.writer.add([row])
        self._steps.note_trace(trains, len(operations))

    def importing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Whoever imports a graph into a v1 graph is remembered: the ops themselves do not tell."""

        @functools.wraps(original)
        def import_graph(*arguments: Any, **options: Any) -> Any:
            graph = None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
            if self._watch.alive and graph is not None and not isinstance(graph, compat_watch.FUNC_GRAPH_CLASS):
                self._imported_by[id(graph)] = users_stack()
            return original(*arguments, **options)

        return import_graph

    def session_graph(self, graph: Any) -> None:
        """A v1 graph is about to run: a trace, if it has grown since it last did."""
        before, _ = self._sessions.get(id(graph), (0, None))
        if graph.version == before:
            return
        self._sessions[id(graph)] = (graph.version, weakref.ref(graph))
        operations = graph.get_operations()
        constants = _constants(operations)
        self._graphs.add(graph, [c for c in constants if c.bytes >= LARGE], id(graph))
        size = NODE_BYTES * len(operations) + sum(c.bytes for c in constants)
        self.count += 1
        self.graph_bytes += size - self._session_bytes.get(id(graph), 0)
        self._session_bytes[id(graph)] = size
        grown = graph.version - before
        cause = f"the graph grew by {grown} ops" if before else "first call"
        imported_by = self._imported_by.pop(id(graph), [])
        line = _adding_line(operations[-grown:], imported_by) if before else calling_line()
        row = Trace(
            self._watch.now, self._watch.step, "Session.run", None, line, -1, cause, 0.0, len(operations),
            size, sum(c.bytes for c in constants), tuple(constants[:MOST_CONSTANTS]), None,
            dict(Counter(op.type for op in operations)),
        )  # fmt: skip
        self._watch.writer.add([row])

    def session_graphs(self) -> list[Any]:
        """v1 graphs that have run and are alive."""
        return [graph for _, ref in self._sessions.values() if ref is not None and (graph := ref()) is not None]

    def _cause(self, options: Any, function_type: Any, defined: Source | None) -> str:
        key = id(options.function_cache)
        earlier = self._types.setdefault(key, [])
        earlier.append(function_type)
        if len(earlier) == 1:
            if defined is not None:
                self._lines[defined] += 1
                if self._lines[defined] > 1:
                    return f"first call of a new tf.function, number {self._lines[defined]} from this line"
            return "first call"
        return _difference(earlier[:-1], function_type)


def _defined(python: Any) -> Source | None:
    code = getattr(inspect.unwrap(python), "__code__", None)
    if code is None or not is_users_file(code.co_filename):
        return None
    return Source(code.co_filename, code.co_firstlineno)


def _difference(earlier: list[Any], new: Any) -> str:
    """In what arguments a function type differs from the nearest of those before."""
    def differing(old: Any) -> list[str]:
        names = [name for name in new.parameters if name in old.parameters]
        return [n for n in names if new.parameters[n].type_constraint != old.parameters[n].type_constraint]

    nearest = min(earlier[-20:], key=lambda old: len(differing(old)))
    changes = differing(nearest)
    if not changes:
        return "a variable, device, strategy or other part of its surroundings changed"
    types = ((n, nearest.parameters[n].type_constraint, new.parameters[n].type_constraint) for n in changes[:3])
    return "; ".join(_change(*each) for each in types)


def _change(name: str, before: Any, after: Any) -> str:
    """How an argument differs; of a dictionary, list or tuple with the same places, in the first part that does."""
    old, new = compat_watch.parts_of_type(before), compat_watch.parts_of_type(after)
    if old.keys() == new.keys():
        for place, part in old.items():
            if part != new[place] and not set(place) & set(":;"):
                return _change(f"{name}{place}", part, new[place])
    return f"argument {name}: {_plain(before)} became {_plain(after)}"


def _plain(kind: Any) -> str:
    """A trace type in words: a Python value stands for itself, a tensor for its dtype and shape."""
    name = type(kind).__name__
    if name == "Literal":
        return f"Python {type(kind.value).__name__} {kind.value!r}"[:80]
    if isinstance(kind, tf.TensorSpec):
        return f"{kind.dtype.name} tensor {kind.shape}"
    if name in ("Weakref", "Reference"):
        return "Python object"
    return str(kind)[:80]


def _adding_line(operations: list[Any], imported_by: list[Source]) -> Source | None:
    """The line that added ops to a graph since it last ran: where their stack and the one now first differ."""
    now = users_stack()
    lines: Counter[Source | None] = Counter()
    for op in operations[:MOST_LOOKED_AT]:
        made_by = [Source(f.filename, f.lineno) for f in compat.frames(op) if is_users_file(f.filename)]
        then = made_by or imported_by
        apart = (was for was, is_ in zip(then, now, strict=False) if was != is_)
        lines[next(apart, now[-1] if now else None)] += 1
    return lines.most_common(1)[0][0] if lines else calling_line()


def _constants(operations: list[Any]) -> list[Constant]:
    """Constants of a graph with the lines that made them, the largest first."""
    found = []
    for op in operations:
        if op.type != "Const":
            continue
        output = op.outputs[0]
        shape = output.shape.as_list() if output.shape.rank is not None else []
        size = prod(shape) * output.dtype.size
        line = user_line(compat.frames(op)) if size >= LARGE else None
        found.append(Constant(op.name, size, str(tuple(shape)), output.dtype.name, line.source if line else None))
    return sorted(found, key=lambda constant: -constant.bytes)
