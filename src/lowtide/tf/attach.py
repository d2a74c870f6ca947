"""What TensorFlow adds to a watched run: hooks for steps, traces, tapes and pipelines, joined."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from lowtide.record import Site
from lowtide.tf import compat, compat_watch, residents
from lowtide.tf.census import made_so_far, take_census
from lowtide.tf.counting import LIMIT, hide, variable
from lowtide.tf.device import COUNTER
from lowtide.tf.hooks import LayerSources, layer_init
from lowtide.tf.labels import LayerNames
from lowtide.tf.nodes import KnownGraphs
from lowtide.tf.objects import of_classes
from lowtide.tf.patches import Patch, patched
from lowtide.tf.pipelines import Pipelines
from lowtide.tf.places import Births, calling_line, making_line
from lowtide.tf.refusals import refusal_of
from lowtide.tf.scopes import NOTING
from lowtide.tf.sightings import Sightings
from lowtide.tf.steps import Steps
from lowtide.tf.stretches import Stretches
from lowtide.tf.switches import switches
from lowtide.tf.tapes import Tapes
from lowtide.tf.tracers import traced_lines
from lowtide.tf.traces import Traces
from lowtide.tf.unseen import Unseen, session_variables
from lowtide.tf.watch import Watch
from lowtide.tf.windows import Windows

_BORN = (
    compat.FUNCTION_CLASS, compat_watch.NEW_VARIABLE_CLASS, compat.OPTIMIZER_CLASS, keras.Model, compat.SESSION_CLASS,
)  # fmt: skip
GROWN, CENSUS_SHARE = 1.04, 0.03
"""A census is repeated when RSS is this many times what it was at the last, and takes this part of the time at most."""
GROWN_MUCH, CENSUS_PAUSE = 1.12, 1
"""After so much growth it need not wait that long, only some times what it took: there cannot be many of these."""


class Counted(NamedTuple):
    """When a census may be taken again, at the soonest, and RSS at the last."""

    again_at: float
    soonest_at: float
    rss: int


class Attachment:
    """TensorFlow as a watched run sees it."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.device_counter = COUNTER
        COUNTER.forget("sample", "step", "detail", "split")
        self.births = Births()
        self.graphs = KnownGraphs()
        self.sources = LayerSources()
        self.windows = Windows(watch, self)
        self.steps = Steps(watch, self.device_counter, self.windows)
        self.sightings = Sightings(watch, self.device_counter, self.steps.in_one_call)
        self._stretches = Stretches(watch, self.windows, self.steps.between)
        self.traces = Traces(watch, self.graphs, self.steps)
        self.steps.on_session_graph = self.traces.session_graph
        self.pipelines = Pipelines(watch, self.births)
        self.tapes = Tapes(watch, self.births)
        self._counted: Counted | None = None
        self._script_is_over = False
        self._device_noted = False
        self._patches = contextlib.ExitStack()
        self._older_layers = {layer.name for layer in of_classes(keras.Layer)}

    def install(self) -> None:
        self._patches.enter_context(patched(self._all_patches()))
        compat_watch.when_devices_open(hide)
        self._watch.writer.fact("versions", {"tensorflow": tf.__version__, "keras": keras.__version__})

    def uninstall(self) -> None:
        self._patches.close()

    def record_all(self) -> None:
        """Record everything in full, from now on or from when TensorFlow opens its devices: there is no map before."""
        compat_watch.when_devices_open(lambda: self.windows.whole() if self._watch.alive else None)

    def _all_patches(self) -> tuple[Patch, ...]:
        return (
            *self.steps.patches(),
            *self.pipelines.patches(),
            *self.tapes.patches(),
            (compat_watch.TRACING, compat_watch.CREATE_TRACE, self.traces.patch),
            (compat_watch.IMPORTER, compat_watch.IMPORT_GRAPH, self.traces.importing),
            (compat_watch.CONTEXT_CLASS, "get_memory_info", self.device_counter.answering),
            (compat_watch.CONTEXT_CLASS, "reset_memory_stats", self.device_counter.resetting),
            (compat_watch.CONTEXT_CLASS, "call_function", self.windows.readying),
            (compat_watch.PROFILER, "ProfilerSession", self.windows.giving_way),
            *NOTING,
            (keras.Layer, "__init__", lambda original: layer_init(self.sources, original)),
            (keras.callbacks.CallbackList, "on_train_end", self._before_callbacks_go),
            (tf.errors.ResourceExhaustedError, "__init__", self._refused),
            *((kind, "__init__", self._born) for kind in _BORN),
        )

    def _born(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Remember the line that made it."""

        @functools.wraps(original)
        def init(thing: Any, *arguments: Any, **options: Any) -> None:
            line = making_line(thing)
            if line is not None:
                self.births.note(thing, line)
            original(thing, *arguments, **options)

        init.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]  # Keras reads it
        return init

    def _note_device(self) -> None:
        """Write down what device there is, once it is open."""
        opened = self.device_counter.opened
        if opened is None or self._device_noted:
            return
        self._device_noted = True
        kind = "bfc" if opened.counts else "cpu"
        if "GPU" in opened.name:
            kind = os.environ.get("TF_GPU_ALLOCATOR", "bfc")
        limit = variable(LIMIT)
        bytes_ = int(limit) << 20 if limit.isdigit() and kind == "bfc" else None
        self._watch.writer.fact("devices", [(opened.name, kind, bytes_)])

    def device(self) -> tuple[int, int, int | None] | None:
        self._note_device()
        stats = self.device_counter.read("sample")
        if stats is not None and self._watch.options.detail_steps:
            self._stretches.sampled(stats.in_use, stats.peak)
        return stats

    def slow(self, now: float) -> dict[str, Any]:
        stages = self.pipelines.stages()
        self._watch.writer.add(stages)
        data = sum(stage.buffered_bytes for stage in stages)
        self.tapes.record()
        tensors = residents.count_tensors()
        return {
            "traces": self.traces.count,
            "graph_bytes": self.traces.graph_bytes,
            "data_bytes": data,
            "tapes": self.tapes.alive(),
            "eager_tensors": tensors.number,
            "eager_bytes": tensors.bytes,
        }

    def host_parts(self, found: dict[str, Any]) -> dict[str, int]:
        data = int(found.get("data_bytes") or 0)
        parts = {"tf.data": data, "graphs": self.traces.graph_bytes}
        opened = self.device_counter.opened
        stats = self.device_counter.read("split") if opened and "CPU" in opened.name else None
        if stats is not None:
            parts["tf.data"] = min(data, stats.in_use)
            parts["device in use"] = stats.in_use - parts["tf.data"]
            parts["device reserve"] = max(0, (stats.reserved or stats.in_use) - stats.in_use)
        return parts

    def layers(self) -> LayerNames:
        return LayerNames({*self.sources.lines, *self._older_layers}, self.sources.lines)

    def unseen(self) -> Unseen:
        """What names the chunks that neither variables nor live tensors account for."""
        constants = [
            (c.bytes, residents.Known(Site(c.op, "Const", "", c.source, "", "graph"), "constants", c.shape, c.dtype))
            for c in self.graphs.constants()
        ]
        variables = session_variables(self.traces.session_graphs(), self.births)
        elements, sighted = self.pipelines.element_sizes(), self.sightings.found()
        return Unseen(variables, constants, elements, self.windows.survivors, sighted)

    def input_test(self) -> Callable[[Any], bool]:
        """Whether a tensor is data: handed to the step that begins, or as large as an element of a dataset."""
        handed, elements = self.steps.handed(), self.pipelines.element_sizes()
        return lambda tensor: id(tensor) in handed or residents.bytes_of(tensor) in elements

    def _before_callbacks_go(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`fit` lets its callbacks go when it returns, and all they hold: who is alive is asked before."""

        @functools.wraps(original)
        def end(callbacks: Any, *arguments: Any, **options: Any) -> Any:
            if self._watch.alive:
                self.census_if_grown(GROWN)
            return original(callbacks, *arguments, **options)

        return end

    def _refused(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """An allocation failed, whether the script catches it or not: what was asked for, and who is alive now."""

        @functools.wraps(original)
        def init(error: Any, *arguments: Any, **options: Any) -> None:
            original(error, *arguments, **options)
            found = refusal_of(str(error), calling_line()) if self._watch.alive else None
            if found is not None:
                first = self._watch.refusal is None
                self._watch.attempt("a sample", self._watch.sample)
                self._watch.refusal = found._replace(time=self._watch.now)
                self._watch.keep(found.source)
                if first:
                    self._watch.attempt("a census", self.census)

        return init

    def census_if_grown(self, enough: float = GROWN_MUCH, rss: int | None = None) -> None:
        """Another census when the process has grown since the last, and its cost has been earned again."""
        last = self._counted
        if last is None:
            return
        now, grown = self._watch.now, (rss or self._watch.rss()) / last.rss
        if (now > last.again_at and grown > GROWN) or (now > last.soonest_at and grown > enough):
            self._watch.attempt("a census", self.census)

    def census(self) -> None:
        """Who is alive now, and who holds them."""
        began = self._watch.now
        with self.steps.within(), self._watch.quiet():
            chunks = self.device_counter.chunks() or []
            tensors = of_classes(compat_watch.EAGER_TENSOR_CLASS)
            residents.note_sighted(tensors, self.sightings.found(), self.births)
            del tensors
            rows = take_census(self.births, chunks, self._watch.now, self._watch.step)
        for row in rows:
            self._watch.keep(row.made)
            self._watch.keep(row.held_at)
        self._watch.writer.add(rows)
        self._watch.writer.add(self.pipelines.stages())
        self._watch.writer.add(traced_lines(self._watch.now, self._watch.step))
        made = made_so_far(self.births, self.sources.lines.values())
        self._watch.writer.fact("made", made)
        self._watch.writer.fact("switches", switches())
        for one in made:
            self._watch.keep(one.source)
        now = self._watch.now
        took = now - began
        self._counted = Counted(now + took / CENSUS_SHARE, now + CENSUS_PAUSE * took, self._watch.rss())

    def script_over(self) -> None:
        """Who is alive is asked before `atexit` lets them go: buffers that are flushed, queues that are emptied."""
        self.census()
        self._script_is_over = True

    def finish(self) -> None:
        self._note_device()
        self.windows.finish()
        self.tapes.record()
        last = self._counted
        if last is None or not self._script_is_over or self._watch.rss() > GROWN * last.rss:
            self._watch.attempt("a census", self.census)
        self.steps.finish()
        self.uninstall()


def attach(watch: Watch) -> Attachment:
    """Hook into the TensorFlow that has just been imported."""
    attachment = Attachment(watch)
    attachment.install()
    watch.attached = attachment
    if watch.options.detail_steps:
        watch.looks = attachment.sightings
    return attachment


