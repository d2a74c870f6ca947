"""Which layer and line of the user's code an op belongs to, told from its name and trace."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from lowtide.program import Source
from lowtide.tf import compat
from lowtide.tf.metrics import metric_line
from lowtide.tf.operations import operation_lines
from lowtide.tf.phases import BACKWARD_SCOPE
from lowtide.tf.places import is_users_file
from lowtide.tf.scopes import opened_in

_SUFFIX = re.compile(r"_\d+$")


INSIDE_A_LAYER = frozenset({"call", "__call__", "build"})
"""In these, and in what they call, the line itself tells more than the line that made the layer; `model.fit(...)` tells
less."""


class Label(NamedTuple):
    layer: str
    source: Source | None


class LayerNames:
    """Finds the layer in an op's name. Keras scopes ops by layer; where no one saw the scope being opened, a number at
    its end that makes no layer's name is taken for TensorFlow's."""

    def __init__(self, names: Iterable[str], sources: Mapping[str, Source] | None = None) -> None:
        self._names = frozenset(names)
        self._sources = sources or {}

    def layer_of(self, op_name: str, opened: Mapping[str, str] | None = None) -> str:
        """The path of layers in a scope, outermost model left out: "encoder/attention". "" when there is none.

        `opened` has the layers of scopes that were seen being opened.
        """
        scope = forward_name(op_name).split("/")[:-1]
        if not self._names and not opened:
            return "/".join(scope)
        seen, found = opened or {}, []
        for depth, part in enumerate(scope, 1):
            if name := seen.get("/".join(scope[:depth])) or self._known(part):
                found.append(name)
        return "/".join(found[1:] if len(found) > 1 else found)

    def source_of(self, layer: str) -> Source | None:
        """The line that made the innermost layer of the path, if it was seen being made."""
        return self._sources.get(layer.rpartition("/")[2])

    def _known(self, part: str) -> str | None:
        if part in self._names:
            return part
        plain = _SUFFIX.sub("", part)
        return plain if plain in self._names else None


_CALLS = re.compile(r"^(ConstantFolding/)?(?:(?:Func/)?(?:Stateful)?PartitionedCall(?:_\d+)?/)+")


def without_calls(op_name: str) -> str:
    """The name as it was traced: TensorFlow puts a function into its caller with the call's name in front."""
    return _CALLS.sub(r"\1", op_name) or op_name


def forward_name(op_name: str) -> str:
    """The scope of the forward op that a gradient op differentiates; other names as they are."""
    scopes = list(BACKWARD_SCOPE.finditer(op_name))
    return op_name[scopes[-1].end() :] if scopes else op_name


def is_backward(op_name: str) -> bool:
    """Whether a name is in a scope that TensorFlow gives to gradients."""
    return BACKWARD_SCOPE.search(op_name) is not None


class Line(NamedTuple):
    """A line of the user's code, and whether a layer's own code runs it, itself or through functions that it calls."""

    source: Source
    inside_a_layer: bool


def user_line(frames: Sequence[Any]) -> Line | None:
    """The innermost frame that is neither a library's nor Lowtide's."""
    users = [frame for frame in frames if is_users_file(frame.filename)]
    if not users:
        return None
    return Line(Source(users[-1].filename, users[-1].lineno), any(frame.name in INSIDE_A_LAYER for frame in users))


class Labels:
    """Labels for the nodes of an optimized graph: by the traced op of that name, or of the longest it extends."""

    def __init__(self, traced: Any, layers: LayerNames) -> None:
        self._ops = {op.name: op for op in traced.get_operations()}
        self._opened = opened_in(traced)
        self._layers = layers
        self._scopes: dict[str, Source | None] = {}
        self._lines: dict[str, Line | None] = {
            name: Line(source, inside_a_layer=True) for name, source in operation_lines(traced).items()
        }

    def of(self, op_name: str, roughly: bool = False) -> Label:
        """`roughly`: the line that made the layer will do, or that of another op in the same scope. To ask for an op's
        own costs memory: TensorFlow keeps the answer, some ten kilobytes, as long as the graph lives."""
        layer = self._layers.layer_of(op_name, self._opened)
        made = self._layers.source_of(layer)
        scope = op_name.rpartition("/")[0]
        if roughly and scope and op_name not in self._lines:
            if made is None and scope not in self._scopes:
                self._scopes[scope] = self.of(op_name).source
            return Label(layer, made or self._scopes[scope])
        lines = (self._line(op_name), self._line(forward_name(op_name)))
        line = next((line for line in lines if line and line.inside_a_layer), lines[0] or lines[1])
        if line is None or (made is not None and not line.inside_a_layer):
            return Label(layer, made)
        return Label(layer, line.source)

    def _line(self, op_name: str) -> Line | None:
        name = op_name
        while name and name not in self._ops:
            name = name.rpartition("/")[0]
        if not name:
            return None
        if name not in self._lines:
            frames = compat.frames(self._ops[name])
            metric = metric_line(frames)
            self._lines[name] = Line(metric, inside_a_layer=True) if metric else user_line(frames)
        return self._lines[name]
