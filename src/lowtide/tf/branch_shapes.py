"""What the gradient of a branch needs only the shape of is handed to it as a shape.

`tf.cond` hands every tensor that its gradient looks at from one `If` to the other, wrapped in an Optional, and so
keeps it whole. Of some the gradient asks the shape only: what was broadcast, what a mean was taken of. When
TensorFlow runs the step it lowers branches first and optimizes then, which does away with these; Lowtide keeps branches
together, so that they have an order, and does it here:

    forward:   OptionalFromValue(x)               ->  OptionalFromValue(Shape(x))
    gradient:  Shape(OptionalGetValue(optional))  ->  OptionalGetValue(optional)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from lowtide.ops import BRANCHES
from lowtide.tf.graphs import Tensor, edges
from lowtide.tf.shapes import branch_names


def hand_over_shapes(graph_def: Any, outputs: Collection[str]) -> None:
    """Change the branches of `graph_def` in place; `outputs` are its results, by tensor name."""
    users = Counter(_called(graph_def))
    functions = {f.signature.name: _Body(f) for f in graph_def.library.function if users[f.signature.name] == 1}
    readers: dict[Tensor, list[tuple[Any, int]]] = {}
    for node in graph_def.node:
        for place, edge in enumerate(edges(node)):
            readers.setdefault(edge, []).append((node, place))
    for node in graph_def.node:
        if node.op not in BRANCHES:
            continue
        for number, kind in enumerate(node.attr["Tout"].list.type):
            read = readers.get(Tensor(node.name, number), [])
            if kind == tf.variant.as_datatype_enum and len(read) == 1 and f"{node.name}:{number}" not in outputs:
                user, place = read[0]
                _hand_over(_bodies(node, functions), number, _bodies(user, functions), place - 1)


def _called(graph_def: Any) -> Iterator[str]:
    """The name of a function for each time that a node mentions it."""
    inside = (node for function in graph_def.library.function for node in function.node_def)
    for node in (*graph_def.node, *inside):
        for value in node.attr.values():
            yield from (function.name for function in (value.func, *value.list.func) if function.name)


def _bodies(node: Any, functions: dict[str, _Body]) -> list[_Body] | None:
    """The branches of a node; None where it has none, or another node has them too."""
    if node.op not in BRANCHES:
        return None
    found = [functions.get(name) for name in branch_names(node)]
    return [body for body in found if body is not None] if None not in found else None


class _Body:
    """A function, its nodes by name, and who reads what in it."""

    def __init__(self, function: Any) -> None:
        self.function = function
        self.nodes = {node.name: node for node in function.node_def}
        self.readers: dict[str, list[Any]] = {}
        self.returned = Counter(function.ret.values())
        for node in function.node_def:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    def returns(self, number: int) -> Any:
        """The node that wraps a result, or nothing, in an Optional which is for nobody else; None where none does."""
        made = self.function.ret[self.function.signature.output_arg[number].name]
        node = self.nodes.get(made.partition(":")[0])
        wraps = node is not None and node.op == "OptionalFromValue"
        alone = wraps and made not in self.readers and self.returned[made] == 1
        return node if alone or (node is not None and node.op == "OptionalNone") else None

    def readers_of(self, name: str) -> list[Any] | None:
        """The nodes that read a tensor or an argument; None where it is a result as well."""
        return None if name in self.returned else self.readers.get(name, [])

    def argument(self, number: int) -> str:
        return str(self.function.signature.input_arg[number].name)


class _Wanted(NamedTuple):
    """Nodes of a gradient that take a value out of its Optional, and those that take its shape."""

    taken: list[Any]
    shapes: list[Any]


def _hand_over(
    forward: Sequence[_Body] | None, result: int, gradient: Sequence[_Body] | None, argument: int
) -> None:
    """Hand the shape over instead of the value, if that is all that is wanted."""
    if forward is None or gradient is None or argument < 0:
        return
    makers = [body.returns(result) for body in forward]
    wanted = [_only_shapes(body, argument) for body in gradient]
    kinds = {node.attr["out_type"].type for of_body in wanted if of_body for node in of_body.shapes}
    if None in makers or None in wanted or len(kinds) != 1:
        return
    kind = kinds.pop()
    for body, maker in zip(forward, makers, strict=True):
        if maker.op == "OptionalFromValue":
            _wrap_shape(body.function, maker, kind)
    for of_body in filter(None, wanted):
        _take_shape(of_body, kind)


def _only_shapes(body: _Body, argument: int) -> _Wanted | None:
    """What takes the shape of an argument's value, in a body that asks nothing else of it; else None."""
    taken = body.readers_of(body.argument(argument))
    if taken is None or any(node.op != "OptionalGetValue" for node in taken):
        return None
    shapes: list[Any] = []
    for node in taken:
        found = body.readers_of(f"{node.name}:components:0")
        if found is None or any(reader.op != "Shape" for reader in found):
            return None
        shapes += found
    return _Wanted(taken, shapes)


def _wrap_shape(function: Any, maker: Any, kind: int) -> None:
    shape = function.node_def.add(name=f"{maker.name}/Shape", op="Shape", device=maker.device)
    shape.input.append(maker.input[0])
    shape.attr["T"].type = maker.attr["Toutput_types"].list.type[0]
    shape.attr["out_type"].type = kind
    maker.input[0] = f"{shape.name}:output:0"
    maker.attr["Toutput_types"].list.type[0] = kind


def _take_shape(wanted: _Wanted, kind: int) -> None:
    for node in wanted.taken:
        node.attr["output_types"].list.type[0] = kind
        del node.attr["output_shapes"].list.shape[:]
        node.attr["output_shapes"].list.shape.add().unknown_rank = True
    for node in wanted.shapes:  # its output has the same name, so nobody who reads it has to change
        node.op = "Identity"
        node.attr["T"].type = kind
        del node.attr["out_type"]
