"""What grows and no special rule explains; and RSS that rises without a leak."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import inf

from lowtide.diagnose import models
from lowtide.diagnose.code import read_code
from lowtide.diagnose.evidence import (
    arrays_explain,
    grown,
    is_worth,
    only_put,
    peak_bytes,
    per_step,
    step_of,
    unexplained,
)
from lowtide.diagnose.origins import collected_by, collected_for_a_while, put_away
from lowtide.diagnose.trends import FEWEST, device_goes_on, host_goes_on, rise, slow_samples
from lowtide.diagnose.types import ADVICE, PROBLEM, Finding
from lowtide.program import Source
from lowtide.record import Detail, Recording
from lowtide.record.views import inside, main_kind, main_steps
from lowtide.units import format_size

NOTABLE = 0.03
MANY_STEPS = 18
"""A process warms up over its first steps: where there are fewer than these, more growth is needed to call it that."""
SOON = 0.1
"""Seconds after the last step in which a line is still one of its loop."""


def on_device(recording: Recording) -> Iterator[Finding]:
    """Device bytes rise from step to step: which line's buffers outlive the step that made them."""
    if _few_steps(recording) or not device_goes_on(recording):
        return
    found = rise(recording, "device_bytes")
    found -= sum(g.bytes for g in grown(recording) if g.row.kind in ("tensor", "variable") and g.row.holder)
    if not is_worth(recording, found, NOTABLE) or _is_let_go(recording, found):
        return
    source, share = _surviving(recording)
    if source is not None and not read_code(recording).in_loop(source):
        source = _called_again(recording) or source  # a layer's own line runs once: it is called on another
    if source is not None and _is_pipelines(recording, source):
        # who takes the elements keeps them, not the line that makes them
        source = _while_it_rose(recording) or source
    source = _rises_beside(recording) or source
    if source is None and not main_steps(recording):
        return
    source = (source and collected_by(read_code(recording), source)) or source
    yield Finding(
        "device-growth", PROBLEM, f"device memory rises with every step, {format_size(found)} in all",
        found, source, read_code(recording).text(source),
        "something holds what this line makes: look for a list, an attribute or a closure that it ends up in",
        per_step(recording, found), "", round(found * share) or None,
    )  # fmt: skip


STAYS = 0.3


def _is_let_go(recording: Recording, risen: int) -> bool:
    """Whether the last steps of `fit` have next to nothing of it any more: its queue was full for a while."""
    steps = [step for _, step in main_steps(recording) if step.kind == "fit"]
    sizes = [step.device_bytes for step in steps if step.device_bytes is not None]
    first = min(sizes[:FEWEST], default=0)
    return max(sizes, default=0) - first > risen / 2 and min(sizes[-FEWEST:]) - first < STAYS * risen


def _few_steps(recording: Recording) -> bool:
    """Too few to call anything growth; a run without any is judged by its samples."""
    return 0 < len(main_steps(recording)) < FEWEST


def _surviving(recording: Recording) -> tuple[Source | None, float]:
    """The line that made most of what outlived the detailed steps, and its part."""
    left: Counter[Source | None] = Counter()
    for detail in recording.details:
        step = step_of(recording, detail)
        if step is not None and step.kind == "stretch":
            continue  # it ends anywhere: what is there then need not stay
        for a in detail.allocations:
            if a.start and a.stop is None and a.category not in ("parameters", "optimizer state"):
                left[_line(detail, a.site)] += a.chunk_bytes
    known = [(source, size) for source, size in left.most_common() if source is not None]
    return (known[0][0], known[0][1] / sum(left.values())) if known else (None, 0.0)


def _called_again(recording: Recording) -> Source | None:
    """The line that calls the function which runs most often while the device's memory rises, if that is most of it."""
    rises: Counter[Source | None] = Counter()
    steps = [step for step in recording.steps if step.device_bytes is not None]
    for before, after in pairwise(steps):
        if before.source == after.source and after.kind == "function":
            rises[after.source] += (after.device_bytes or 0) - (before.device_bytes or 0)
    source, most = rises.most_common(1)[0] if rises else (None, 0)
    return source if 2 * most > rise(recording, "device_bytes") else None


def _is_pipelines(recording: Recording, source: Source) -> bool:
    """Whether what a line made came out of tf.data."""
    sites = [site for detail in recording.details for site in detail.sites if site.source == source]
    return any(site.op.startswith("tf.data") for site in sites)


def _line(detail: Detail, site: int) -> Source | None:
    return detail.sites[site].source


def on_host(recording: Recording) -> Iterator[Finding]:
    """The process grows from step to step outside the device: the lines it was on meanwhile."""
    outside = _outside_device(recording)
    if _few_steps(recording) or not host_goes_on(outside):
        return
    found = rise(outside, "rss_bytes") - arrays_explain(recording) - _pages_of_files(recording)
    if not main_steps(recording):
        found = min(found, unexplained(recording))  # RSS rises as a program warms up: its heap has to, too
    few = 0 < len(main_steps(recording)) < MANY_STEPS
    if not is_worth(recording, found, 2 * NOTABLE if few else NOTABLE) or _retained(recording) > found / 2:
        return
    if _is_the_models(outside):
        if not list(models.models_kept(recording)):
            yield from models.never_freed(recording, found)
        return
    named = _traced(recording) or only_put(recording)
    risen = _while_it_rose(recording)
    code = read_code(recording)
    source = named or (risen and (put_away(code, risen) or collected_by(code, risen))) or risen
    if source is None and not main_steps(recording):
        return
    if named is None and _has_ever_new_shapes(recording):
        yield Finding(
            "kernels-per-shape", ADVICE,
            f"the process grows, {format_size(found)} in all, with each new shape: oneDNN keeps kernels for it",
            found, source, read_code(recording).text(source),
            "pad to a few lengths, or set TF_ENABLE_ONEDNN_OPTS=0: no leak, it ends when every shape has been seen",
            per_step(recording, found), "", found,
        )  # fmt: skip
        return
    if source is not None and named is None and collected_for_a_while(code, source):
        yield Finding(
            "host-peak", ADVICE, f"what this line collects is held until it has all of it: {format_size(found)}",
            found, source, code.text(source),
            "use each part when it is made and let it go: a running sum, or an array of the end's size that is filled",
            None, "", found,
        )  # fmt: skip
        return
    yield Finding(
        "host-growth", PROBLEM, f"the process grows with every step, {format_size(found)} in all, outside the device",
        found, source, read_code(recording).text(source),
        "Python objects, graphs or closures pile up: `lowtide run --host tracemalloc` names the lines that allocate",
        per_step(recording, found), "", found,
    )  # fmt: skip


def _pages_of_files(recording: Recording) -> int:
    """By how many pages of files RSS rose since the first step: they are there while nobody else wants them."""
    steps = main_steps(recording)
    begun = steps[0][1].stop if steps else 0.0
    if not recording.splits:
        return 0
    first = min(recording.splits, key=lambda split: abs(split.time - begun))
    return max(0, recording.splits[-1].parts["libraries"] - first.parts["libraries"])


WARM_UP = 2
"""So many steps after a graph was built still take what it needs to run."""


def _is_the_models(outside: Recording) -> bool:
    """Models are made and trained one after another, and the process grows where graphs are built, not while one runs.

    What grows from step to step of one model is something else.
    """
    if models.trained_again(outside) < 2:
        return False
    steps = [step for _, step in main_steps(outside) if step.rss_bytes is not None]
    built = sorted(trace.time for trace in outside.traces)
    young = old = 0
    for number in range(1, len(steps)):
        before, after = steps[max(0, number - WARM_UP)], steps[number]
        more = (after.rss_bytes or 0) - (steps[number - 1].rss_bytes or 0)
        if bisect_right(built, before.stop) < bisect_right(built, after.stop):
            young += more
        else:
            old += more
    return young > old


SHAPES = 3
LARGER_INPUT = "larger input"
"""The reason of a detailed step that was given more than any before it."""


def _has_ever_new_shapes(recording: Recording) -> bool:
    """Inputs were larger again and again, and no new trace was needed for it."""
    larger = [detail for detail in recording.details if detail.reason == LARGER_INPUT]
    traced_again = [trace for trace in recording.traces if trace.cause.startswith("argument")]
    on_cpu = all("CPU" in device.name for device in recording.run.machine.devices)
    return on_cpu and len(larger) >= SHAPES > len(traced_again)


def _outside_device(recording: Recording) -> Recording:
    """The same run, with RSS less what is the device's, on a CPU, and less what building graphs took.

    Memory that an allocator has once used stays with the process, so its highest until then is what counts: a larger
    batch lifts RSS for good, and is no growth.
    """
    peaks = [(s.stop, s.device_peak_bytes or 0) for s in recording.steps]
    peaks += [(s.time, s.device_peak_bytes or 0) for s in recording.samples]
    on_host = all("CPU" in device.name for device in recording.run.machine.devices)
    highs = [(time, "high", size) for time, size in peaks if on_host]
    built = [(trace.time, "built", max(0, trace.rss_bytes or 0)) for trace in recording.traces]
    times, sizes, high, graphs = [0.0], [0], 0, 0
    for time, what, size in sorted(highs + built):
        high, graphs = (max(high, size), graphs) if what == "high" else (high, graphs + size)
        times.append(time)
        sizes.append(high + graphs)

    def less(rss: int | None, time: float) -> int | None:
        return None if rss is None else rss - sizes[bisect_right(times, time) - 1]

    steps = tuple(s._replace(rss_bytes=less(s.rss_bytes, s.stop)) for s in recording.steps)
    samples = tuple(s._replace(rss_bytes=less(s.rss_bytes, s.time)) for s in recording.samples)
    return replace(recording, steps=steps, samples=samples)


def _traced(recording: Recording) -> Source | None:
    """The line that holds most, where a tracer ran."""
    last = max((line.time for line in recording.lines), default=0.0)
    found = [line for line in recording.lines if line.time == last]
    return max(found, key=lambda line: line.bytes).source if found else None


def _rises_beside(recording: Recording) -> Source | None:
    """The line of steps of another kind, before the run's own begin or after they end, between which the device's
    memory rises by most of it. Those in between see every rise, whoever's it is."""
    own = [step for _, step in main_steps(recording)]
    begun, over = (own[0].start, own[-1].stop) if own else (0.0, 0.0)
    sizes: dict[Source, list[int]] = {}
    for step in recording.steps:
        outside = step.kind != main_kind(recording) and (step.stop <= begun or step.start >= over)
        if outside and step.source is not None and step.device_bytes is not None:
            sizes.setdefault(step.source, []).append(step.device_bytes)
    rises = {source: values[-1] - values[0] for source, values in sizes.items() if len(values) >= FEWEST}
    source, most = max(rises.items(), key=lambda pair: pair[1], default=(None, 0))
    return source if 2 * most > rise(recording, "device_bytes") else None


def _while_it_rose(recording: Recording) -> Source | None:
    """The line that the main thread was on while RSS rose most, as far as samples tell: from the first step to the
    last, if there are any."""
    rises: Counter[Source] = Counter()
    steps = main_steps(recording)
    begun = steps[0][1].stop if steps else min((s.time for s in inside(recording) if s.device_bytes), default=0.0)
    over = steps[-1][1].stop + SOON if steps else inf
    samples = [s for s in inside(recording) if s.rss_bytes is not None and begun < s.time < over]
    for before, after in pairwise(samples):
        if after.source is not None and (after.rss_bytes or 0) > (before.rss_bytes or 0):
            rises[after.source] += (after.rss_bytes or 0) - (before.rss_bytes or 0)
    return rises.most_common(1)[0][0] if rises else None


def _retained(recording: Recording) -> int:
    """Freed blocks that malloc keeps, at the end."""
    known = slow_samples(recording)
    return (known[-1].heap_free_bytes or 0) if known else 0


def retention(recording: Recording) -> Iterator[Finding]:
    """RSS that rose because glibc keeps what was freed: no leak, and said so."""
    kept = _retained(recording)
    if kept > 0.1 * peak_bytes(recording) and is_worth(recording, kept):
        yield Finding(
            "malloc-retention", ADVICE, f"{format_size(kept)} of RSS are freed blocks that malloc keeps: no leak",
            kept, None, "",
            "MALLOC_ARENA_MAX=1 MALLOC_TRIM_THRESHOLD_=65536 MALLOC_MMAP_THRESHOLD_=65536 in the environment return it",
            None, "", kept,
        )  # fmt: skip
