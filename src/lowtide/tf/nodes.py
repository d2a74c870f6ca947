"""What is known of the ops of traced graphs by name: type, layer, line, and what their outputs are for."""

from __future__ import annotations

import weakref
from collections.abc import Collection
from typing import Any, NamedTuple

from lowtide.ops import Act, rule_of
from lowtide.program import Source
from lowtide.record import Constant
from lowtide.tf import compat_watch
from lowtide.tf.graphs import CONTROL, edges
from lowtide.tf.labels import Label, Labels, LayerNames, without_calls
from lowtide.tf.phases import phases

MOST_GRAPHS = 16
"""How many graphs are searched for a name: a function that is traced again and again has very many."""
INPUT_KINDS = frozenset({"Placeholder", "_Arg", "_DeviceArg", "PlaceholderWithDefault"})
_DATA_KINDS = ("Iterator", "OptionalGetValue", "OptionalFromValue", "MultiDeviceIterator", "QueueDequeue")


class Node(NamedTuple):
    kind: str
    layer: str
    source: Source | None
    phase: str
    category: str
    """ "" where the graph alone does not tell."""


class _Role(NamedTuple):
    kind: str
    phase: str
    category: str


_UNKNOWN = _Role("", "", "")


class GraphNodes:
    """The ops of one graph. Lines and layers are looked up when asked for: most ops never are.

    The graph itself is held from the first look-up until `let_go` only: else no graph that was looked at is freed.
    """

    def __init__(self, graph: Any, layers: LayerNames) -> None:
        nodes = list(graph.as_graph_def().node)
        self._graph, self._layers = weakref.ref(graph), layers
        self._labels: Labels | None = None
        phase = phases(nodes)
        category = _categories(nodes, phase)
        alike: dict[_Role, _Role] = {}  # a graph has very many ops, and few roles
        self._roles = {
            name: alike.setdefault(role, role)
            for name, role in ((n.name, _Role(n.op, phase[n.name], category[n.name])) for n in nodes)
        }
        self._found: dict[tuple[str, bool], Node] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._roles

    def node(self, name: str, roughly: bool = False) -> Node:
        """`roughly`: see `Labels.of`."""
        if (name, roughly) not in self._found:
            graph = self._graph()
            if self._labels is None and graph is not None:
                self._labels = Labels(graph, self._layers)
            label = self._labels.of(name, roughly) if self._labels else Label("", None)
            role = self._roles.get(name, _UNKNOWN)
            self._found[name, roughly] = Node(role.kind, label.layer, label.source, role.phase, role.category)
        return self._found[name, roughly]

    def let_go(self) -> None:
        self._labels = None


def _categories(nodes: list[Any], phase: dict[str, str]) -> dict[str, str]:
    """activations: made going forward, read going backward. gradients: made going backward, read by the update."""
    needed: set[str] = set()
    updated: set[str] = set()
    for node in reversed(nodes):
        sources = [edge.node for edge in edges(node) if edge.output != CONTROL]
        rule = rule_of(node.op)
        views = rule is not None and rule.act in (Act.VIEW, Act.VIEW_EACH)
        if phase[node.name] == "backward" or (views and node.name in needed):
            needed.update(sources)
        if phase[node.name] == "update" or (views and node.name in updated):
            updated.update(sources)
    return {node.name: _category(node, phase[node.name], needed, updated) for node in nodes}


def _category(node: Any, phase: str, needed: set[str], updated: set[str]) -> str:
    if node.op == "Const":
        return "constants"
    if node.op in INPUT_KINDS or node.op.startswith(_DATA_KINDS):
        return "inputs"
    if phase == "forward" and node.name in needed:
        return "activations"
    if phase == "backward" and node.name in updated:
        return "gradients"
    return "temporaries"


class KnownGraphs:
    """Every traced graph that is alive, and a way from the name of an op that ran to the op that was traced.

    TensorFlow puts functions into their callers before it runs them, with the caller's name in front: a name is
    looked up whole, then without its first parts, then by the longest scope that some graph knows.
    """

    def __init__(self) -> None:
        self._graphs: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._nodes: dict[int, tuple[int, GraphNodes]] = {}
        self._constants: dict[int, list[Constant]] = {}

    def add(self, graph: Any, constants: list[Constant], caller: int) -> None:
        """`caller` is the identity of what the script called when the graph was made. The bodies of its loops and
        branches come with it: a loop's `truediv` is not the one beside the loop."""
        for body in compat_watch.bodies_of(graph):
            self._add(body, [], caller)
        self._add(graph, constants, caller)

    def _add(self, graph: Any, constants: list[Constant], caller: int) -> None:
        key = id(graph)

        def forget(_: object) -> None:
            for table in (self._graphs, self._nodes, self._constants):
                table.pop(key, None)

        self._graphs[key] = (weakref.ref(graph, forget), caller)
        self._constants[key] = constants
        self._nodes.pop(key, None)

    def constants(self) -> list[Constant]:
        """Of all graphs that are alive."""
        return [constant for found in list(self._constants.values()) for constant in found]

    def finder(self, callers: Collection[int], layers: LayerNames) -> Finder:
        """Looks names up in the graphs of these callers first, then in the latest of the others."""
        alive = [(graph, caller) for ref, caller in list(self._graphs.values()) if (graph := ref()) is not None]
        ours = [graph for graph, caller in alive if caller in callers]
        others = [graph for graph, caller in alive if caller not in callers]
        chosen = [*reversed(ours[-MOST_GRAPHS:]), *reversed(others[-MOST_GRAPHS:])]
        return Finder([self._parsed(graph, layers) for graph in chosen], layers)

    def let_go(self) -> None:
        """Hold no graph; what was looked up stays known."""
        for _, nodes in list(self._nodes.values()):
            nodes.let_go()

    def _parsed(self, graph: Any, layers: LayerNames) -> GraphNodes:
        """Parsed once, and again when a v1 graph has grown."""
        key, version = id(graph), graph.version
        known = self._nodes.get(key)
        if known is None or known[0] != version:
            known = self._nodes[key] = (version, GraphNodes(graph, layers))
        return known[1]


def _traced_names(name: str) -> tuple[str, str]:
    """Names that an op which ran by this one may have been traced by, the likelier first."""
    return name, compat_watch.without_output_suffix(name)


class Finder:
    def __init__(self, tables: list[GraphNodes], layers: LayerNames) -> None:
        self._tables, self._layers = tables, layers
        self._found: dict[tuple[str, bool], Node] = {}

    def node(self, name: str, roughly: bool = False) -> Node:
        """`roughly`: see `Labels.of`."""
        if (name, roughly) not in self._found:
            exact = (self._exact(traced, roughly) for traced in _traced_names(name))
            self._found[name, roughly] = next(filter(None, exact), None) or self._near(without_calls(name), roughly)
        return self._found[name, roughly]

    def knows(self, name: str) -> bool:
        return any(traced in table for traced in _traced_names(name) for table in self._tables)

    def _exact(self, name: str, roughly: bool) -> Node | None:
        parts = name.split("/")
        for first in range(len(parts)):
            rest = "/".join(parts[first:])
            for table in self._tables:
                if rest in table:
                    return table.node(rest, roughly)
        return None

    def _near(self, name: str, roughly: bool) -> Node:
        """Grappler made it, out of ops that were traced in the same scope."""
        layer = self._layers.layer_of(name)
        for table in self._tables:
            found = table.node(name, roughly)
            if found.source is not None:
                return found
        return Node("", layer, self._layers.source_of(layer), "", "")
