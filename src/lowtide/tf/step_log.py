"""The steps of a run as they are recorded: each with the bytes of its time, several together where they are quick."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from lowtide.program import Source
from lowtide.record import STEP_KINDS, Detail, Step
from lowtide.tf.device import DeviceCounter
from lowtide.tf.places import calling_line
from lowtide.tf.rhythm import Rhythm
from lowtide.tf.watch import Watch

ONE_CALL = frozenset({"fit", "function", "session", "evaluate", "predict", "run"})
"""Kinds whose step is a call, begin to end."""
MANY, SHORT = 2000, 0.02
"""After so many steps of a kind, those shorter than this are put together, so that a long run's record stays small."""
SEVERAL, QUICK, PACE = 100, 0.005, 0.02
"""After so many steps of a kind, calls quicker than this are only counted, and looked at once in this time."""


class OnStep(Protocol):
    """What wants to know of steps: detailed ones are decided and recorded there."""

    def begins(self, kind: str, key: object, given: int) -> None:
        """A call begins, with so many bytes handed to it as far as one sees."""

    def tracing(self, key: object) -> None:
        """In the middle of a call a graph is about to be made for it."""

    def traced(self, key: object, ops: int) -> None:
        """In the middle of a call a graph of so many ops was made for it, which runs next."""

    def waits_for(self, key: object) -> bool:
        """Whether the next call of this has to be told of."""

    def ends(self, kind: str, key: object, number: int | None, peak: int | None, rss: int = 0) -> bool:
        """Whether this step was recorded in detail."""

    def finish(self) -> None:
        """Nothing is recorded in detail from here on, until the next step begins."""


class Ended(NamedTuple):
    """Calls that have ended."""

    kind: str
    name: str
    key: object
    repeats: int
    source: Source | None
    start: float
    stop: float


class _Group:
    """Quick steps that have been counted and not been looked at yet."""

    __slots__ = ("count", "key", "kind", "name", "start", "stop")

    def __init__(self, kind: str, name: str, key: object, start: float) -> None:
        self.kind, self.name, self.key, self.start = kind, name, key, start
        self.count, self.stop = 0, start


class StepLog:
    """What `lowtide.tf.steps` has seen. It says when calls begin and end; here they become records."""

    def __init__(self, watch: Watch, device: DeviceCounter, on_step: OnStep) -> None:
        self._watch, self._device, self._on_step = watch, device, on_step
        self._counts = dict.fromkeys(STEP_KINDS, 0)
        self._waiting: dict[str, Step] = {}
        self._last_end: dict[str, float] = {}
        self._quick: set[object] = set()
        self._rhythm = Rhythm()
        self._group: _Group | None = None
        self._part: Ended | None = None
        self._counts_peaks = False
        self.over = 0
        """Calls that have ended, at least so many: enough to see that some did."""

    def is_quick(self, key: object) -> bool:
        """Whether calls of this need only be counted."""
        return key in self._quick and not self._on_step.waits_for(key)

    def is_part(self, kind: str) -> bool:
        """Whether an eager call is told with the one that it leads to."""
        return bool(self._rhythm.leads_to(kind)) and not self._on_step.waits_for(kind)

    def begins(self, kind: str) -> None:
        """A call begins, whose record is its own."""
        self._device.open()
        if not self._counts_peaks:  # from the first step on, whoever else reads and resets the count meanwhile
            self._counts_peaks = True
            self._device.read("step")
        self.account(kind)

    def counted_begins(self, kind: str, name: str, key: object) -> None:
        """A quick call begins: its peak is in the device's count, which is read for several of them together."""
        now = self._watch.now
        if self._group is None or self._group.key != key or now - self._group.stop > PACE:  # not what came between
            self.account(kind)
            self._group = _Group(kind, name, key, now)

    def counted_ends(self, repeats: int) -> None:
        if self._group is not None:
            self._group.count += repeats
            self._group.stop = self._watch.now
            if self._group.stop - self._group.start > PACE:
                self.account()

    def part_ends(self, kind: str, name: str) -> None:
        """An eager call has ended of which only this is kept, until one sees what follows."""
        self.over += 1
        now = self._watch.now
        self._part = self._ended(kind, name, kind, now, now, 1)

    def account(self, coming: str = "") -> None:
        """Look at what has not been looked at yet, before a call of kind `coming` begins."""
        group, self._group = self._group, None
        if group is not None and group.count:
            self.over += 1
            self._look(self._ended(group.kind, group.name, group.key, group.start, group.stop, group.count))
        part, self._part = self._part, None
        if part is not None and self._rhythm.leads_to(part.kind) != coming:
            self._look(part)
        if coming:
            self._rhythm.comes(coming)

    def ends(self, kind: str, name: str, key: object, start: float, repeats: int) -> None:
        """A call has ended."""
        self.over += 1
        self._look(self._ended(kind, name, key, start, self._watch.now, repeats))

    def _ended(self, kind: str, name: str, key: object, start: float, stop: float, repeats: int) -> Ended:
        if kind not in ONE_CALL:
            start = max(self._last_end.get(kind, start), 0.0)
        self._watch.stepped()
        self._last_end[kind] = stop
        return Ended(kind, name, key, repeats, calling_line(), start, stop)

    def _look(self, ended: Ended) -> None:
        """Make a record of it, with the device's bytes."""
        kind, name, key, repeats, source, start, stop = ended
        stats = self._device.read("step")
        self._counts[kind] += repeats
        if self._counts[kind] > SEVERAL and stop - start < QUICK * repeats:
            self._quick.add(key)
        else:
            self._quick.discard(key)
        in_use, peak = (stats.in_use, stats.peak) if stats else (None, None)
        rss = self._watch.rss()
        detailed = self._on_step.ends(kind, key, self._watch.steps, peak, rss)  # the number that it will have
        self._record(Step(kind, name, source, start, stop, in_use, peak, rss, detailed, repeats))

    def add_stretch(self, detail: Detail) -> None:
        """Something was recorded in full that is no step."""
        line = calling_line()
        self._record(
            Step("stretch", "", line, detail.start, detail.stop, detail.end_bytes, detail.peak_bytes, self._watch.rss(),
                 True, 1)
        )  # fmt: skip

    def _record(self, step: Step) -> None:
        """Write the step, or put it together with those before it that were as short."""
        before = self._waiting.pop(step.kind, None)
        if before is not None:
            step = _together(before, step)
        if self._counts[step.kind] > MANY and step.stop - step.start < SHORT and not step.detailed:
            self._waiting[step.kind] = step
        else:
            self._watch.add_step(step)

    def finish(self) -> None:
        self.account()
        for step in self._waiting.values():
            self._watch.add_step(step)
        self._waiting.clear()


def _together(a: Step, b: Step) -> Step:
    peaks = [peak for peak in (a.device_peak_bytes, b.device_peak_bytes) if peak is not None]
    return b._replace(
        start=a.start, device_peak_bytes=max(peaks, default=None), repeats=a.repeats + b.repeats,
    )  # fmt: skip
