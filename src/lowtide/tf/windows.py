"""Windows: stretches of the run recorded in full, from opening the profiler to the Detail that is written."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lowtide.record.host import give_back_free_heap
from lowtide.tf import compat_watch, residents
from lowtide.tf.choice import STRETCH, WARM, Choice
from lowtide.tf.detail import Begun, EagerOps, Frame, Naming, make_detail
from lowtide.tf.places import calling_line
from lowtide.tf.residents import Known
from lowtide.tf.step_log import ONE_CALL
from lowtide.tf.watch import Watch

if TYPE_CHECKING:
    from lowtide.tf.attach import Attachment

LARGE = 1000
"""Ops of a graph. Optimizing it makes many times as many allocations, all of them gone before it runs, and TensorFlow's
profiler would keep each of them until the window closes. So such a window opens when that is done."""

_PROFILER = threading.Lock()
"""Whoever holds it has a window of ours open, in whatever thread."""


class Windows:
    """Records in full the steps that were chosen."""

    def __init__(self, watch: Watch, owner: Attachment) -> None:
        self._watch, self._owner = watch, owner
        self._choice = Choice(watch.options.detail_steps)
        self._open: Window | None = None
        self._counted = False
        self._stretch: Window | None = None
        self._put_off: Window | None = None  # until the graph that is being made for its call is there
        self._unready = False  # a large graph was traced for it, and has not run yet
        self.survivors: dict[int, tuple[int, Known]] = {}
        """By address, what outlived the latest window: its requested bytes and what it is."""

    def begins(self, kind: str, key: object, given: int) -> None:
        self.end_stretch()
        reason = self._choice.begins(kind, key, self._open is None, kind in ONE_CALL, given)
        if reason:
            self._begin(reason, key)

    def tracing(self, key: object) -> None:
        """What was called needs a graph, which is made now: that takes long, and what it takes is not the step's."""
        window = self._open
        if window is not None and window.key == key:
            self._open, self._put_off = None, window
            window.drop()

    def traced(self, key: object, ops: int) -> None:
        """What was called has just been traced to so many ops, and runs next."""
        window = self._put_off
        reason = window.reason if window else self._choice.traced() if self._open is None else ""
        if not reason:
            return
        self._unready = self._unready or ops > LARGE  # one may call another, and be small itself
        if self._unready:
            self._put_off = window or Window(self._watch, self._owner, reason, key)
        else:
            self._put_off = None
            self._begin(reason, key)

    def readying(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """In place of `Context.call_function`: a large graph is made ready before its window opens."""

        @functools.wraps(original)
        def call_function(context: Any, name: Any, inputs: Any, outputs: int) -> Any:
            if self._unready:
                self._unready = False
                self._watch.attempt("a detailed step", lambda: self._make_ready(context, name, inputs, outputs))
            return original(context, name, inputs, outputs)

        return call_function

    def _make_ready(self, context: Any, name: Any, inputs: Any, outputs: int) -> None:
        window, self._put_off = self._put_off, None
        if window is None or self._open is not None:
            return
        with self._owner.steps.within(), self._watch.quiet():
            compat_watch.make_ready(context, name, inputs, outputs)
        self._begin(window.reason, window.key)

    def waits_for(self, key: object) -> bool:
        return self._open is not None or self._choice.wants(key)

    def ends(self, kind: str, key: object, number: int | None, peak: int | None, rss: int = 0) -> bool:
        detail = None
        window, self._put_off, self._unready = self._open, None, False
        if window is not None and window.key == key:
            self._open = None
            detail = self._watch.attempt("a detailed step", lambda: window.close(number))
        if number is None:
            return False
        self._choice.ended(kind, key, peak, detail.peak_bytes if detail else None)
        if detail is not None and detail.reason == WARM and not self._counted:
            self._counted = True
            self._watch.attempt("a census", self._owner.census)
        elif detail is None:
            self._owner.census_if_grown(rss=rss)
        if self._open is None and kind not in ONE_CALL:
            # Eager steps go from one end to the next: the window for the coming one opens now.
            reason = self._choice.follows(kind, key)
            if reason:
                self._begin(reason, key)
        return detail is not None

    def _begin(self, reason: str, key: object) -> None:
        window = Window(self._watch, self._owner, reason, key)
        with self._owner.steps.within():
            if self._watch.attempt("a detailed step", window.open):
                self._open = window

    def whole(self) -> None:
        """Begin a window that `finish` ends, whatever steps there are in between."""
        self._begin("asked for", object())

    @property
    def highest(self) -> int:
        """The most that the device had in any full record."""
        return self._choice.highest

    @property
    def in_stretch(self) -> bool:
        return self._stretch is not None

    def begin_stretch(self) -> bool:
        """Begin a record of eager code that is no step, until `end_stretch` or the next step. Whether it began."""
        if self._open is not None or self._owner.steps.inside:
            return False
        self._begin(STRETCH, STRETCH)
        self._stretch = self._open
        return self.in_stretch

    def end_stretch(self) -> None:
        """End it, and make a step of it."""
        window, self._stretch = self._stretch, None
        if window is None or window is not self._open:
            return
        self._open = None
        detail = self._watch.attempt("a detailed step", lambda: window.close(self._watch.steps))
        if detail is not None:
            self._choice.recorded(detail.peak_bytes)
            self._owner.steps.add_stretch(detail)

    def giving_way(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The script wants the profiler for itself: there is one, and it is the script's."""

        def session(*arguments: Any) -> Any:
            self.finish()
            if (line := calling_line()) is not None:
                self._owner.births.made[compat_watch.PROFILER_SESSION_CLASS, line] += 1
            return original(*arguments)

        return session

    def finish(self) -> None:
        self.end_stretch()
        if self._open is not None:
            window, self._open = self._open, None
            self._watch.attempt("a detailed step", lambda: window.close(self._watch.step or 0))


class Window:
    """A stretch of the run recorded in full."""

    def __init__(self, watch: Watch, owner: Attachment, reason: str, key: object) -> None:
        self._watch, self._owner, self.reason, self.key = watch, owner, reason, key
        self._stack = contextlib.ExitStack()
        self._session: Any = None

    def open(self) -> bool:
        """Whether it could be: there is one profiler, and another thread's window or the script may have it."""
        if self._owner.device_counter.chunks() is None or not _PROFILER.acquire(blocking=False):
            return False
        opened = False
        try:
            opened = self._open()
        finally:
            if not opened:
                _PROFILER.release()
        return opened

    def _open(self) -> bool:
        owner = self._owner
        self._stack.enter_context(self._watch.quiet())
        owner.steps.called.clear()
        alive = residents.living()
        residents.note_sighted(alive.tensors, owner.sightings.found(), owner.births)
        known = residents.addresses(alive, owner.births, owner.layers(), owner.input_test())
        unseen = owner.unseen()
        give_back_free_heap()  # the highest RSS of a run is that of a window: it has the profile's bytes as well
        self._session = compat_watch.start_profile()
        if self._session is None:
            self._stack.close()
            self._watch.writer.note("no detailed steps: the script runs TensorFlow's profiler itself")
            return False
        self._start = self._watch.now
        before = time.time_ns()
        chunks = owner.device_counter.chunks() or []
        self._begun = Begun(chunks, known, unseen, before, time.time_ns())
        self._eager = EagerOps(owner.births, owner.layers(), lambda: owner.steps.phase)
        self._stack.enter_context(compat_watch.every_op(self._eager))
        return True

    def drop(self) -> None:
        """Nothing of it is wanted."""
        self._stack.close()
        try:
            compat_watch.drop_profile(self._session)
        finally:
            _PROFILER.release()

    def close(self, number: int | None) -> Any:
        """The Detail, or None when the call it was for turned out to be none."""
        owner = self._owner
        self._stack.close()
        give_back_free_heap()
        try:
            raw = compat_watch.stop_profile(self._session)
        finally:
            _PROFILER.release()
        stop = self._watch.now
        if number is None:
            return None
        with owner.steps.within(), self._watch.quiet():
            alive = residents.living()
            residents.remember_forms(alive, owner.births)
            after = residents.addresses(alive, owner.births, owner.layers())
            finder = owner.graphs.finder(owner.steps.called, owner.layers())
            stats = owner.device_counter.read("detail")
            frame = Frame(number, self.reason, self._start, stop, stats.reserved if stats else None)
            events = compat_watch.profile_events(raw)
            naming = Naming(finder, self._eager.seen, after)
            detail, survivors = make_detail(frame, self._begun, events, naming, self._watch.at)
            owner.graphs.let_go()
        owner.windows.survivors = survivors
        for site in detail.sites:
            self._watch.keep(site.source)
        self._watch.writer.add_detail(detail)
        give_back_free_heap()
        return detail
