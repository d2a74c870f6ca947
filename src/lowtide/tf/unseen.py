"""What the runtime holds and Python cannot ask for: a session's variables, constants of graphs, tf.data's buffers.

A chunk that outlived an earlier window is what it was seen being made as, while its size is the same. Any other is told
by its size: a constant of a graph, an element of a dataset. What is left is named so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

import tensorflow as tf

from lowtide.record import Site
from lowtide.record.types import UNSEEN
from lowtide.tf.places import Births
from lowtide.tf.residents import Known

SMALL = 1024
"""Constants and elements below this are too common in size to be told by it."""
OTHER = Known(Site(UNSEEN, "", "", None, "", "graph"), "other")
"""Kernels' state, caches, and what belongs to objects that Python does not see."""
BUFFERS = Known(Site("tf.data buffers", "", "", None, "", "graph"), "inputs")
_LASTING = frozenset({"parameters", "optimizer state", "inputs", "constants", "other"})

Sized = tuple[int, Known]


def session_variables(graphs: Iterable[Any], births: Births) -> dict[str, Sized]:
    """By name, bytes and what of each variable of v1 graphs: their buffers are a session's."""
    found = {}
    for graph in graphs:
        trained = {id(v) for v in graph.get_collection(tf.compat.v1.GraphKeys.TRAINABLE_VARIABLES)}
        for variable in graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES):
            size = int(variable.shape.num_elements() or 0) * variable.dtype.base_dtype.size
            site = Site(variable.op.name, "Variable", "", births.of(variable), "", "graph")
            category = "parameters" if id(variable) in trained else "optimizer state"
            known = Known(site, category, str(tuple(variable.shape)), variable.dtype.base_dtype.name)
            found[variable.op.name] = (size, known)
    return found


class Unseen:
    """Names chunks, one after the other; each variable and constant is found once."""

    def __init__(
        self,
        variables: Mapping[str, Sized],
        constants: Iterable[Sized],
        elements: Mapping[int, Known],
        survivors: Mapping[int, Sized],
        sighted: Mapping[int, tuple[int, Site]] = MappingProxyType({}),
    ) -> None:
        self._sighted = sighted
        self._survivors = dict(survivors)
        settled = _settled(variables, survivors)
        self._survivors.update(settled)
        named = {known.site.op for _, known in settled.values()}
        rest = [sized for name, sized in variables.items() if name not in named]
        self._by_size: dict[int, list[Known]] = {}
        for size, known in (*rest, *constants):
            if size >= SMALL:
                self._by_size.setdefault(size, []).append(known)
        self._elements = {size: known for size, known in elements.items() if size >= SMALL}
        self._taken: Counter[int] = Counter()

    def take(self, address: int, requested: int) -> Known:
        """What a chunk holds; of what has no name, the line where it appeared, if it was seen."""
        known = self._named(address, requested)
        size, sighted = self._sighted.get(address, (-1, known.site))
        if known.site != OTHER.site or size != requested:
            return known
        return known._replace(site=known.site._replace(source=sighted.source))

    def _named(self, address: int, requested: int) -> Known:
        size, known = self._survivors.get(address, (-1, OTHER))
        if size != requested:
            return self._of_size(requested)
        if known.site.mode == "eager" or known.category in _LASTING:
            return known
        if "Initializer" in known.site.op:
            return known._replace(category="constants")
        found = self._of_size(requested)
        return found if found is not OTHER else known._replace(category="other")

    def _of_size(self, requested: int) -> Known:
        waiting = self._by_size.get(requested, [])
        if self._taken[requested] < len(waiting):
            self._taken[requested] += 1
            return waiting[self._taken[requested] - 1]
        return self._elements.get(requested, OTHER)


def _settled(variables: Mapping[str, Sized], survivors: Mapping[int, Sized]) -> dict[int, Sized]:
    """The survivors that are variables: made by an op in the variable's scope, best by its assignment, of its size."""
    found: dict[str, tuple[int, int, Sized]] = {}
    for address, (size, known) in survivors.items():
        name = known.site.op
        while name and name not in variables:
            name = name.rpartition("/")[0]
        if name and variables[name][0] == size:
            worse = 0 if known.site.kind.startswith(("Variable", "Assign")) else 1
            if name not in found or worse < found[name][0]:
                found[name] = (worse, address, variables[name])
    return {address: sized for _, address, sized in found.values()}
