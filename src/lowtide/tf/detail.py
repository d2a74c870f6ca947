"""A step in full: every allocation and free of a stretch of the run, and what was there before, as a Detail.

TensorFlow's profiler gives the events; the allocator's own map, taken right after the profiler starts, gives what was
there. Both are the allocator's word, so what is alive at any event sums to its own count to the byte. Names come from
the graphs that ran; eager ops are seen one by one while the window is open, with the line that called them.
"""

from __future__ import annotations

import bisect
import inspect
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import keras

from lowtide.program import Source
from lowtide.record import Allocation, Detail, Site
from lowtide.tf.compat_watch import Chunk, MemoryEvent
from lowtide.tf.labels import INSIDE_A_LAYER, LayerNames, is_backward, without_calls
from lowtide.tf.metrics import line_of_metric
from lowtide.tf.nodes import Finder
from lowtide.tf.places import Births, is_users_file
from lowtide.tf.residents import Known
from lowtide.tf.unseen import BUFFERS, OTHER, Unseen

FUNCTION = "__"
"""How the names of compiled functions begin, which are op types to eager code."""
FOLDED = "__cf__"
"""In the name of a constant that Grappler computed when the function was first run."""
SMALL_SHARE = 1e-5
"""Of the peak: a buffer of less has the line of its layer or scope."""
_LAYER_CALL = inspect.unwrap(keras.Layer.__call__).__code__


class EagerOp(NamedTuple):
    """An op that eager code ran: it was over at `when`."""

    when: int
    site: Site
    phase: str


class EagerOps:
    """Sees every op of a thread while a window is open."""

    def __init__(self, births: Births, layers: LayerNames, phase: Callable[[], str]) -> None:
        self.seen: list[EagerOp] = []
        self._births, self._layers, self._phase = births, layers, phase

    def __call__(self, kind: str, outputs: Any, eager: bool) -> None:
        if not eager:
            return
        when = time.time_ns()
        layer, source, function = _place(self._layers)
        site = Site(kind, kind, layer, source, function, "graph" if kind.startswith(FUNCTION) else "eager")
        self.seen.append(EagerOp(when, site, self._phase()))
        for output in outputs:
            self._births.note(output, site)


def _place(layers: LayerNames) -> tuple[str, Source | None, str]:
    """The layers whose calls the stack is in, outermost model left out, and the line of the user's code.

    That of the layer, unless a layer's own code runs the line, itself or through functions that it calls.
    """
    frame: Any = sys._getframe(3)
    names: list[str] = []
    line: Source | None = None
    function, inside_a_layer = "", False
    while frame is not None:
        code = frame.f_code
        if code is _LAYER_CALL:
            names.append(str(getattr(frame.f_locals.get("self"), "name", "")))
        elif line is None and code.co_name == "update_state" and not is_users_file(code.co_filename):
            line, function = line_of_metric(frame.f_locals.get("self")), code.co_name
        elif is_users_file(code.co_filename):
            inside_a_layer = inside_a_layer or code.co_name in INSIDE_A_LAYER
            if line is None:
                line, function = Source(code.co_filename, frame.f_lineno), code.co_name
        frame = frame.f_back
    path = names[::-1]
    layer = "/".join(path[1:] if len(path) > 1 else path)
    made = layers.source_of(layer) if layer else None
    if made is not None and not inside_a_layer:
        return layer, made, function
    return layer, line, function


class Begun(NamedTuple):
    """How things stood when a window opened. The map was made between `before` and `after`."""

    chunks: list[Chunk]
    known: dict[int, Known]
    unseen: Unseen
    before: int
    after: int


class Naming(NamedTuple):
    """What gives events their names."""

    finder: Finder
    eager: list[EagerOp]
    variables_after: dict[int, Known]


class _Buffer:
    """A buffer while the events are replayed."""

    __slots__ = ("chunk", "event", "known", "requested", "start", "stop")

    def __init__(self, requested: int, chunk: int, start: int, event: MemoryEvent | None, known: Known | None) -> None:
        self.requested, self.chunk, self.start, self.event, self.known = requested, chunk, start, event, known
        self.stop: int | None = None


class Replay:
    """The events played over the map: what is alive from when to when, and the peak."""

    def __init__(self, begun: Begun, events: list[MemoryEvent]) -> None:
        self.live = _residents(begun)
        self.buffers = list(self.live.values())
        self.begin = self.total = sum(buffer.chunk for buffer in self.buffers)
        self.requested = sum(buffer.requested for buffer in self.buffers)
        self.peak, self.peak_at, self.peak_requested = self.total, 0, self.requested
        self.times = [begun.after]
        for event in events:
            if not self._is_in_map(begun, event):
                self._play(event)

    def _is_in_map(self, begun: Begun, event: MemoryEvent) -> bool:
        """Whether the map was made after the event; while it was being made, the map itself tells."""
        if event.when < begun.before:
            return True
        if event.when > begun.after:
            return False
        return (event.address in self.live) != event.frees

    def _play(self, event: MemoryEvent) -> None:
        number = len(self.times)
        if event.frees:
            buffer = self.live.pop(event.address, None)
            if buffer is None:
                return
            buffer.stop = number
            self.total -= buffer.chunk
            self.requested -= buffer.requested
        else:
            buffer = _Buffer(event.requested, event.chunk, number, event, None)
            self.buffers.append(buffer)
            self.live[event.address] = buffer
            self.total += buffer.chunk
            self.requested += buffer.requested
        self.times.append(event.when)
        if self.total >= self.peak and not event.frees:  # of several as high the last: more of it was seen being made
            self.peak, self.peak_at, self.peak_requested = self.total, number, self.requested


def _residents(begun: Begun) -> dict[int, _Buffer]:
    used = [chunk for chunk in begun.chunks if chunk.in_use]
    known = _by_chunk([chunk.address for chunk in used], begun.known)
    found = {}
    for chunk in sorted(used, key=lambda chunk: -chunk.requested):
        what = known.get(chunk.address) or begun.unseen.take(chunk.address, chunk.requested)
        found[chunk.address] = _Buffer(chunk.requested, chunk.size, 0, None, what)
    return found


def _by_chunk(starts: list[int], known: dict[int, Known]) -> dict[int, Known]:
    """A view begins inside the chunk that it pins; what begins where the chunk does comes first."""
    found: dict[int, Known] = {}
    for address, what in known.items():
        at = bisect.bisect_right(starts, address) - 1
        if at >= 0 and (starts[at] == address or starts[at] not in found):
            found[starts[at]] = what
    return found


class Frame(NamedTuple):
    """What a Detail says of itself besides its events."""

    step: int
    reason: str
    start: float
    stop: float
    reserved_bytes: int | None


def make_detail(
    frame: Frame, begun: Begun, events: list[MemoryEvent], naming: Naming, clock: Callable[[int], float]
) -> tuple[Detail, dict[int, tuple[int, Known]]]:
    """The step in full, and what outlived it by address.

    `clock` turns nanoseconds since 1970 into seconds of the run.
    """
    replay = Replay(begun, events)
    moments = _Moments(replay, naming)
    sites: dict[Site, int] = {}
    allocations = []
    kept = _became(replay, naming)
    for buffer in replay.buffers:
        site, category, shape, dtype, temporary = moments.of(buffer, kept.get(id(buffer)))
        number = sites.setdefault(site, len(sites))
        row = Allocation(
            number, category, buffer.requested, buffer.chunk, buffer.start, buffer.stop, temporary, shape, dtype
        )
        allocations.append(row)
    rows = dict(zip(map(id, replay.buffers), allocations, strict=True))
    numbered = tuple(sites)
    survivors = {address: _known(rows[id(buffer)], numbered) for address, buffer in replay.live.items()}
    free = [chunk.size for chunk in begun.chunks if not chunk.in_use]
    detail = Detail(
        step=frame.step,
        reason=frame.reason,
        start=frame.start,
        stop=frame.stop,
        sites=numbered,
        allocations=tuple(allocations),
        times=tuple(clock(when) for when in replay.times),
        begin_bytes=replay.begin,
        end_bytes=replay.total,
        peak_bytes=replay.peak,
        peak_requested_bytes=replay.peak_requested,
        peak_at=replay.peak_at,
        peak_site=next((a.site for a in allocations if a.start == replay.peak_at and a.start), None),
        reserved_bytes=frame.reserved_bytes,
        largest_free_bytes=max(free, default=0),
    )
    return detail, survivors


def _became(replay: Replay, naming: Naming) -> dict[int, Known]:
    """What buffers that outlived the window are now, by identity.

    A variable's new value is an op's output until it takes the old one's place: it counts as the variable only when
    the old buffer was gone at the peak, or never was.
    """
    after = _by_chunk(sorted(replay.live), naming.variables_after)
    old = {b.known.site: b for b in replay.buffers if b.known is not None and b.known.site.kind == "Variable"}
    found = {}
    for address, known in after.items():
        buffer, before = replay.live[address], old.get(known.site)
        gone = before is None or before is buffer or (before.stop is not None and before.stop <= replay.peak_at)
        if gone or known.site.kind != "Variable":
            found[id(buffer)] = known
    return found


def _known(row: Allocation, sites: tuple[Site, ...]) -> tuple[int, Known]:
    return row.requested_bytes, Known(sites[row.site], row.category, row.shape, row.dtype)


class _Moments:
    """Names each buffer and says what it is for."""

    def __init__(self, replay: Replay, naming: Naming) -> None:
        self._naming = naming
        self._ends = [op.when for op in naming.eager]
        self._small = SMALL_SHARE * replay.peak
        phases = [self._phase(buffer) for buffer in replay.buffers if buffer.event is not None]
        starts = [buffer.start for buffer in replay.buffers if buffer.event is not None]
        self._backward = min((s for s, p in zip(starts, phases, strict=True) if p == "backward"), default=None)
        self._update = min((s for s, p in zip(starts, phases, strict=True) if p == "update"), default=None)

    def _eager_op(self, event: MemoryEvent) -> EagerOp | None:
        """The eager op during which an event happened: the first to end after it, if it can have made it."""
        at = bisect.bisect_left(self._ends, event.when)
        if at == len(self._ends):
            return None
        op = self._naming.eager[at]
        if event.op in ("", op.site.kind):
            return op
        # A kernel of its own goes by another name than the op (_MklMatMul); an op of a graph has its scope.
        return op if "/" not in event.op and not self._naming.finder.knows(event.op) else None

    def _phase(self, buffer: _Buffer) -> str:
        event = buffer.event
        assert event is not None
        eager = self._eager_op(event)
        if eager is not None:
            return eager.phase
        return "backward" if is_backward(event.op) else self._naming.finder.node(event.op, roughly=True).phase

    def of(self, buffer: _Buffer, became: Known | None) -> tuple[Site, str, str, str, bool]:
        event = buffer.event
        if event is None:
            known = became if became and became.site.kind == "Variable" else buffer.known or OTHER
            return known.site, known.category, known.shape, known.dtype, False
        site, category = self._made(buffer, event)
        shape, dtype = event.shape, event.dtype if event.dtype != "invalid" else ""
        if became is not None and became.site.kind == "Variable":
            return became.site, became.category, became.shape, became.dtype, False
        return site, category, shape, dtype, event.temporary

    def _made(self, buffer: _Buffer, event: MemoryEvent) -> tuple[Site, str]:
        eager = self._eager_op(event)
        if eager is not None:
            return eager.site, self._eager_category(buffer, event, eager)
        if not event.op:
            if "tf_data" in event.thread_name:
                return BUFFERS.site, "inputs"
            return Site("copied from Python", "", "", None, "", "eager"), "inputs"
        node = self._naming.finder.node(event.op, roughly=buffer.chunk < self._small)
        kind = node.kind or event.op.rpartition("/")[2]
        site = Site(without_calls(event.op), kind, node.layer, node.source, "", "graph")
        if event.temporary:
            return site, "temporaries"
        if FOLDED in event.op:
            return site, "constants"
        if node.category and node.category != "temporaries":
            return site, node.category
        # Its buffer may have been taken over by an op whose output is kept: how long it lived tells.
        return site, self._category(buffer, node.phase or self._phase(buffer))

    def _eager_category(self, buffer: _Buffer, event: MemoryEvent, eager: EagerOp) -> str:
        if event.temporary:
            return "temporaries"
        if eager.site.kind in ("_EagerConst", "Const") or eager.site.kind.startswith(("Iterator", FUNCTION)):
            return "inputs"  # of a function: what is handed to it, since its own ops say who they are
        category = self._category(buffer, eager.phase)
        kept_by_script = self._backward is None and not eager.site.layer
        return "other" if category == "activations" and kept_by_script else category

    def _category(self, buffer: _Buffer, phase: str) -> str:
        """By what it lived to see: a forward buffer that is there going backward was kept for it."""
        outlives = float("inf") if buffer.stop is None else buffer.stop
        if phase == "backward":
            return "gradients" if self._update is not None and outlives > self._update else "temporaries"
        if phase in ("forward", "") and self._backward is not None:
            return "activations" if buffer.start < self._backward < outlives else "temporaries"
        if phase in ("forward", "") and buffer.stop is None:
            return "activations"
        return "temporaries"
