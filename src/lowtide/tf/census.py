"""Who is alive, and who holds them: live tensors, variables, arrays, graphs and models, with the chain to a name.

A census looks at every Python object once, groups what it finds by kind, form and line, and follows references
backwards from one of each group until it meets a name the user knows: a global, a local, an attribute, a closure. All
groups are followed together, one level at a time, since each level costs a pass over all objects.
"""

from __future__ import annotations

import bisect
import mmap
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import Any, NamedTuple

import keras
import numpy as np

from lowtide.program import Source
from lowtide.record import Held, Made, Site
from lowtide.tf import compat, compat_watch
from lowtide.tf.holders import Chains
from lowtide.tf.objects import of_classes, referred_to
from lowtide.tf.places import Births
from lowtide.tf.reach import Reach
from lowtide.tf.traces import NODE_BYTES

SMALL = 4096
"""Arrays and tensors below this are not looked at one by one."""
MOST_GROUPS = 12
SHARE = 0.01
"""Groups with less than this part of all bytes found are left out, unless they are many."""
MANY = 4
DEEP = 1 << 20
"""Many things of so many bytes are worth a search for a holder that is not the user's."""
_KINDS: tuple[tuple[str, Any], ...] = (
    ("tensor", compat_watch.EAGER_TENSOR_CLASS),
    ("variable", compat_watch.VARIABLE_CLASS),
    ("tape", compat_watch.TAPE_CLASS),
    ("graph", compat_watch.GRAPH_CLASS),
    ("function", compat.FUNCTION_CLASS),
    ("model", keras.Model),
    ("optimizer", compat.OPTIMIZER_CLASS),
    ("dataset", compat_watch.DATASET_CLASS),
    ("iterator", compat_watch.ITERATOR_CLASS),
)
_LEAVES = (compat_watch.EAGER_TENSOR_CLASS, compat_watch.GRAPH_CLASS)
"""What they refer to is not looked into: graphs have thousands of parts."""


class Group:
    """Things of one kind, form and line."""

    def __init__(self, kind: str, made: Source | None, example: str) -> None:
        self.kind, self.made, self.example = kind, made, example
        self.things: list[Any] = []
        self.bytes = self.viewed = 0


class Pinned(NamedTuple):
    """The buffer that a thing keeps, and how much of it the thing shows."""

    address: int | None
    bytes: int
    viewed: int


_COUNTED = (*_KINDS, ("profiler", compat_watch.PROFILER_SESSION_CLASS), ("session", compat.SESSION_CLASS))


def made_so_far(births: Births, layers: Iterable[Source]) -> list[Made]:
    """What each line has made: by kind, and layers."""
    counts: Counter[tuple[str, str, Source]] = Counter()
    for (cls, line), count in births.made.items():
        kind = next((kind for kind, parent in _COUNTED if issubclass(cls, parent)), None)
        if kind is not None:
            counts[kind, cls.__name__, line] += count
    counts.update(("layer", "Layer", line) for line in layers)
    return [Made(*key, count) for key, count in counts.items()]


def take_census(births: Births, chunks: list[compat_watch.Chunk], now: float, step: int | None) -> list[Held]:
    """Everything alive that holds memory, grouped by holder."""
    reach = Reach(_LEAVES)
    groups = _worth_it(_alike(list(_grouped(reach.arrays, births, _ChunkOf(chunks)).values())))
    lists = [group.things for group in groups]
    deep = [group.kind != "graph" and len(group.things) >= MANY and group.bytes >= DEEP for group in groups]
    chains = Chains(reach, lists, (groups, lists, *lists), deep)
    del lists, reach
    return _merged(
        Held(now, step, g.kind, g.made, chain.text, chain.line, len(g.things), g.bytes, g.viewed, g.example)
        for g, chain in zip(groups, chains.found, strict=True)
    )


def _alike(groups: list[Group]) -> list[Group]:
    """Many groups of a few things each, that differ in their sizes only, are one: batches of all lengths, say."""
    rows: dict[Any, list[Group]] = {}
    for group in groups:
        dtype, _, shape = group.example.partition(" ")
        few = group.kind in ("tensor", "array", "variable") and len(group.things) < MANY
        key = (group.kind, group.made, dtype, shape.count(",")) if few else id(group)
        rows.setdefault(key, []).append(group)
    return [one for row in rows.values() for one in ([_joined(row)] if len(row) >= MANY else row)]


def _joined(groups: list[Group]) -> Group:
    dtype, _, _ = groups[0].example.partition(" ")
    shapes = [group.example.partition(" ")[2].strip("()").split(",") for group in groups]
    dims = [column[0].strip() if len(set(column)) == 1 else "?" for column in zip(*shapes, strict=False)]
    joined = Group(groups[0].kind, groups[0].made, f"{dtype} ({', '.join(dims)})")
    for group in groups:
        joined.things += group.things
        joined.bytes += group.bytes
        joined.viewed += group.viewed
    return joined


def _worth_it(groups: list[Group]) -> list[Group]:
    total = sum(group.bytes for group in groups)
    large = [group for group in groups if group.bytes > SHARE * total or len(group.things) >= MANY]
    ranked = sorted(large, key=lambda g: (-g.bytes, -len(g.things)))
    return [*ranked[:MOST_GROUPS], *(group for group in ranked[MOST_GROUPS:] if group.kind == "tape")]  # C++ inside


def _merged(rows: Iterable[Held]) -> list[Held]:
    """Things of one form with one holder are one row, from the line of those whose line was seen."""
    found: dict[Any, Held] = {}
    for row in rows:
        key = (row.kind, row.example, row.holder) if row.holder else (row.kind, row.example, row.made)
        before = found.get(key)
        if before is not None:
            made = before.made or row.made
            row = before._replace(
                made=made, objects=before.objects + row.objects, bytes=before.bytes + row.bytes,
                viewed_bytes=before.viewed_bytes + row.viewed_bytes,
            )  # fmt: skip
        found[key] = row
    return sorted(found.values(), key=lambda row: -row.bytes)


def _grouped(reached: list[Any], births: Births, chunk_of: _ChunkOf) -> dict[Any, Group]:
    groups: dict[Any, Group] = {}
    seen: set[int] = set()
    for thing in of_classes(*(parent for _, parent in _KINDS)):
        kind = next(kind for kind, parent in _KINDS if isinstance(thing, parent))
        _add(groups, seen, kind, thing, births, chunk_of)
    for array in {id(array): array for array in chain(reached, referred_to(np.ndarray))}.values():
        _add(groups, seen, "array", array, births, chunk_of)
    return groups


def _add(groups: dict[Any, Group], seen: set[int], kind: str, thing: Any, births: Births, chunk_of: _ChunkOf) -> None:
    try:
        example, pinned = _measure(kind, thing, chunk_of)
    except (AttributeError, ValueError, TypeError, RuntimeError):
        return  # half made, deleted, or of a graph that is gone
    if kind in ("tensor", "array", "variable") and pinned.bytes < SMALL:
        return
    made = _made(thing, births)
    if made is None and kind not in ("tensor", "array", "variable", "graph"):
        return  # a library's own
    group = groups.setdefault((kind, example, made), Group(kind, made, example))
    group.things.append(thing)
    group.viewed += pinned.viewed
    if pinned.address is None or pinned.address not in seen:
        group.bytes += pinned.bytes
        if pinned.address is not None:
            seen.add(pinned.address)


def _made(thing: Any, births: Births) -> Source | None:
    found = births.of(thing)
    return found.source if isinstance(found, Site) else found


def _measure(kind: str, thing: Any, chunk_of: _ChunkOf) -> tuple[str, Pinned]:
    if kind == "tensor":
        if not thing.dtype.size or thing.dtype.name in ("resource", "variant", "string"):
            return str(thing.dtype.name), Pinned(None, 0, 0)
        viewed = int(thing.shape.num_elements() or 0) * thing.dtype.size
        return f"{thing.dtype.name} {tuple(thing.shape)}", chunk_of(compat.address_of(thing), viewed)
    if kind == "array":
        return f"{thing.dtype.name} {thing.shape}", _array(thing, chunk_of)
    if kind == "variable":
        in_session = compat_watch.eager_handle(thing) is None  # of a v1 graph: its bytes are a session's
        size = 0 if in_session else int(thing.shape.num_elements() or 0) * thing.dtype.size
        return f"{thing.dtype.name} {tuple(thing.shape)}", Pinned(None, size, size)
    if kind == "graph":
        size = NODE_BYTES * len(thing.get_operations())
        return getattr(thing, "name", "") or type(thing).__name__, Pinned(None, size, size)
    return _name(kind, thing), Pinned(None, 0, 0)


def _name(kind: str, thing: Any) -> str:
    name = getattr(thing, "__name__", None) if kind == "function" else None
    return str(name or type(thing).__name__)


def _array(array: Any, chunk_of: _ChunkOf) -> Pinned:
    """A view of an array keeps the whole of it; one of a tensor, the tensor's chunk."""
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    if isinstance(root.base, mmap.mmap):
        return Pinned(None, 0, 0)  # a file's pages: the system takes them back when it likes
    address = int(root.__array_interface__["data"][0])
    if root.base is not None:
        return chunk_of(address, array.nbytes, root.nbytes)
    return Pinned(address, root.nbytes, array.nbytes)


class _ChunkOf:
    """From an address to the chunk that it lies in."""

    def __init__(self, chunks: list[compat_watch.Chunk]) -> None:
        self._chunks = [chunk for chunk in chunks if chunk.in_use]
        self._starts = [chunk.address for chunk in self._chunks]

    def __call__(self, address: int | None, viewed: int, otherwise: int | None = None) -> Pinned:
        whole = viewed if otherwise is None else otherwise
        if address is None:
            return Pinned(None, whole, viewed)
        at = bisect.bisect_right(self._starts, address) - 1
        if at >= 0 and address < self._starts[at] + self._chunks[at].size:
            return Pinned(self._starts[at], self._chunks[at].requested, viewed)
        return Pinned(address, whole, viewed)
