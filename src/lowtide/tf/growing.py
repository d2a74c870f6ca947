"""A graph that grows part by part, and what TensorFlow infers of each tensor as it is added.

Resource arguments become variable handles of the right type, other arguments have the batch filled in. What TensorFlow
cannot infer is known from elsewhere, and stands in: what a loop returns, what a list holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from lowtide.tf.compat import GraphDef
from lowtide.tf.graphs import CONTROL, Tensor, edges
from lowtide.tf.known import Known
from lowtide.tf.values import computed

_LARGEST_CONSTANT = 64
"""Elements. Loop bounds and shapes are small; larger values are never needed."""


class GrowingGraph:
    """`tensors` is what is known so far."""

    def __init__(self, whole: GraphDef, arguments: Mapping[str, Known]) -> None:
        self.tensors: dict[Tensor, Known] = {}
        self._arguments = arguments
        self._whole = whole
        self._graph = tf.Graph()
        self._made: dict[Tensor, Any] = {}
        self._stood_in: set[str] = set()
        self._parts = 0

    def stands_in(self, name: str) -> bool:
        return name in self._stood_in

    def add(self, nodes: Sequence[Any]) -> None:
        """Infer `nodes`, which are in order and read nothing that is not there yet; again, where they were before."""
        nodes = [node for node in nodes if node.name not in self._stood_in]
        part = GraphDef(versions=self._whole.versions)
        if not self._parts:
            part.library.CopyFrom(self._whole.library)
        names = {node.name for node in nodes}
        outside: set[Tensor] = set()
        for node in nodes:
            if node.name in self._arguments and node.op in ("Placeholder", "_Arg"):
                _add_stand_in(part, node.name, self._arguments[node.name])
                continue
            sources = edges(node)
            outside.update(edge for edge in sources if edge.node not in names and edge.output != CONTROL)
            copied = part.node.add()
            copied.CopyFrom(node)
            copied.attr.pop("_class", None)
            copied.device = ""
            if any(edge.output == CONTROL for edge in sources):  # no shape depends on it
                data = [text for text, edge in zip(node.input, sources, strict=True) if edge.output != CONTROL]
                del copied.input[:]
                copied.input.extend(data)
        prefix = self._import(part, {f"{t.node}:{t.output}": self._made[t] for t in outside})
        for node in nodes:
            self._read(node, self._graph.get_operation_by_name(prefix + node.name).outputs)

    def stand_in(self, name: str, outputs: Sequence[Known]) -> None:
        """What node `name` returns, in place of the node."""
        self._stood_in.add(name)
        part = GraphDef(versions=self._whole.versions)
        for index, known in enumerate(outputs):
            _add_stand_in(part, f"result_{index}", known)
        prefix = self._import(part, {})
        for index, known in enumerate(outputs):
            self._made[Tensor(name, index)] = self._graph.get_tensor_by_name(f"{prefix}result_{index}:0")
            self.tensors[Tensor(name, index)] = known

    def _import(self, part: GraphDef, mapping: Mapping[str, Any]) -> str:
        self._parts += 1
        with self._graph.as_default():
            tf.graph_util.import_graph_def(part, input_map=mapping, name=f"part_{self._parts}")
        return f"part_{self._parts}/"

    def _read(self, node: Any, outputs: Sequence[Any]) -> None:
        given = self._arguments.get(node.name)
        for index, output in enumerate(outputs):
            known = _read(output)
            if given is not None:
                known = replace(given, dims=given.dims if given.dims is not None else known.dims)
            elif known.value is None and _may_be_computed(known):
                known = replace(known, value=_computed(node, known, self.tensors))
            self.tensors[Tensor(node.name, index)] = known
            self._made[Tensor(node.name, index)] = output


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


def _add_stand_in(graph_def: GraphDef, name: str, known: Known) -> None:
    node = graph_def.node.add()
    node.name = name
    if known.dtype == "resource" and known.element is not None:
        node.op = "VarHandleOp"
        node.attr["dtype"].type = tf.as_dtype(known.element.dtype).as_datatype_enum
        node.attr["shape"].shape.CopyFrom(tf.TensorShape(known.element.dims).as_proto())
        node.attr["shared_name"].s = name.encode()
    elif known.dtype == "variant" and known.element is not None:
        # Of so many elements as nobody knows: a list made of constants alone TensorFlow computes, and takes for empty.
        element_shape = _add_constant(graph_def, f"{name}/lowtide_element", _as_shape_tensor(known.element.dims))
        count = graph_def.node.add(name=f"{name}/lowtide_count", op="Placeholder")
        count.attr["dtype"].type = tf.int32.as_datatype_enum
        count.attr["shape"].shape.CopyFrom(tf.TensorShape([]).as_proto())
        node.op = "TensorListReserve"
        node.input.extend([element_shape, count.name])
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
