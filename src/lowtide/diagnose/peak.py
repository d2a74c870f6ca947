"""The peak in general: the line that has most of it, on the device and on the host; what is reserved and never used."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from lowtide.diagnose.code import Code, read_code
from lowtide.diagnose.evidence import is_users, is_worth, likeliest, names_in, step_of
from lowtide.diagnose.origins import (
    blamed_caller,
    collected_by,
    collected_for,
    copied_and_kept,
    made_empty,
    sized_by,
    taken_from,
)
from lowtide.diagnose.step import sizes_in
from lowtide.diagnose.types import ADVICE, PROBLEM, Finding
from lowtide.known import known_on
from lowtide.program import Source
from lowtide.record import TRAINING_KINDS, Allocation, Detail, Recording, Sample
from lowtide.record.views import by_category, device_peak, fullest_detail, inside, main_steps, reserve_unused
from lowtide.units import format_size

LARGE, NOTABLE, ONE_NAME = 0.2, 0.12, 0.08
SOME, HALF = 0.05, 0.4
"""Less of the run's peak is enough where it is nearly half of the device's."""
NEARLY_EQUAL = 0.8
_WORK = ("MatMul", "Conv", "Einsum")
SOON = 1.0
"""Seconds around the highest sample in which the line is looked for."""
WANTED = 1.5
"""What stays may be wanted, unlike what comes and goes: it is told beside that if it is so many times as much."""
IDLE = 0.25
SWAPPED = 0.02
MODEL = 4
"""So many layers from one line are a model."""
FULL, NEAR = 0.7, 0.8
"""A detailed step tells of the peak from this part of it on; a sample is at the peak from this part on."""

SMALLER = "make what it computes smaller or shorter-lived: a smaller batch or piece, a lower precision, in place"


def by_line(recording: Recording) -> Iterator[Finding]:
    """Of what a step itself allocates, one line has most at the peak."""
    peak = device_peak(recording)
    least = FULL * peak.bytes if peak is not None else 0
    full = sorted((d for d in recording.details if d.peak_bytes >= least), key=lambda d: -d.peak_bytes)
    for detail in full:  # one may have only what others left
        if found := list(_by_line(recording, detail)):
            yield from found
            return
    if all(step is not None and step.kind == "stretch" for step in (step_of(recording, d) for d in full)):
        yield from _by_samples(recording)  # eager code that was there before anybody looked


def _by_line(recording: Recording, detail: Detail) -> Iterator[Finding]:
    sizes: Counter[Source] = Counter()
    layers: dict[Source, set[str]] = {}
    for a in detail.at_peak:
        source = detail.sites[a.site].source
        if detail.sites[a.site].kind == "MakeIterator":
            continue  # fit's copy of what the script holds: that is told where it is made
        if a.start and source is not None and a.category not in ("parameters", "optimizer state"):
            sizes[source] += a.chunk_bytes
            layers.setdefault(source, set()).add(detail.sites[a.site].layer)
    for source in [source for source, names in layers.items() if len(names) >= MODEL]:
        del sizes[source]  # a model's definition: what all its layers have is no line's own
    # the way back of all other lines, or what a step of Keras has no line of the user's for
    back = {step.source for step in recording.steps if step.kind in _NO_LINE}
    forward = Counter({source: size for source, size in sizes.items() if source not in back})
    if any(is_worth(recording, size, NOTABLE) for size in forward.values()):
        sizes = forward
    if not sizes:
        return
    source = _first_of_its_form(read_code(recording), detail, _of_nearly_equal(detail, sizes), sizes)
    if (blown_up := _by_broadcasting(recording, detail, source)) is not None:
        yield blown_up
        return
    size = sizes[source]
    most = is_worth(recording, size, SOME) and size > HALF * detail.peak_bytes
    if most or is_worth(recording, size, NOTABLE):
        largest, shape = _largest(detail, source)
        line = blamed_caller(read_code(recording), source) or _layers_call(recording, detail, source) or source
        yield Finding(
            "peak-by-line", ADVICE,
            f"this line has {size / max(1, detail.peak_bytes):.0%} of the device's peak, {shape} the largest of it",
            size, line, read_code(recording).text(line),
            SMALLER,
            None, "", largest,
        )  # fmt: skip
    else:
        yield from _by_function(recording, detail, forward)


_BY_ELEMENT = frozenset({
    "Sub", "Add", "AddV2", "Mul", "RealDiv", "DivNoNan", "SquaredDifference", "Maximum", "Minimum", "Pow",
    "Equal", "NotEqual", "Less", "LessEqual", "Greater", "GreaterEqual", "LogicalAnd", "LogicalOr", "BitwiseAnd",
})  # fmt: skip
"""Ops on two tensors, element by element: what they make is larger than both only where both are broadcast."""


def _by_broadcasting(recording: Recording, detail: Detail, source: Source) -> Finding | None:
    """What a line has most of is of a form that another one made first, of two smaller tensors: `[n] - [n, 1]`."""
    form = sizes_in(_largest_at(detail, source).shape)
    alike = (a for a in detail.allocations if sizes_in(a.shape) == form and "gradient" not in detail.sites[a.site].op)
    first = min(alike, key=lambda a: a.start, default=None)
    site = detail.sites[first.site] if first is not None else None
    size = sum(a.chunk_bytes for a in detail.at_peak if sizes_in(a.shape) == form)
    if first is None or site is None or not form or not first.start or not is_worth(recording, size, NOTABLE):
        return None
    if site.kind not in _BY_ELEMENT or site.source in (None, source):
        return None
    return Finding(
        "peak-by-line", ADVICE,
        f"broadcasting makes {first.dtype} {first.shape} of two smaller tensors here; what is as large has "
        f"{size / max(1, detail.peak_bytes):.0%} of the device's peak",
        size, site.source, read_code(recording).text(site.source),
        "if their shapes were meant to be the same, make them so (`tf.squeeze(y, -1)`, `y[:, None]`); else go through "
        "one of them in pieces", None, "", size,
    )  # fmt: skip


_MAKES = ("__init__", "build")
"""Methods of a layer or model that make layers and run none."""


def _layers_call(recording: Recording, detail: Detail, source: Source) -> Source | None:
    """Where the script itself calls the one layer that a line makes; a line of the layer's own code stays."""
    file = read_code(recording).file(source.file)
    function = file.enclosing(source.line) if file is not None else None
    if file is not None and file.class_of(source.line) and function is not None and function.name not in _MAKES:
        return None
    layers = {site.layer for site in detail.sites if site.source == source and site.mode == "eager"}
    calls = {step.source for step in recording.steps if step.kind == "call" and step.name in layers and step.source}
    return calls.pop() if len(layers) == len(calls) == 1 else None


def _by_function(recording: Recording, detail: Detail, sizes: Counter[Source]) -> Iterator[Finding]:
    """No line has much, and the lines of one function have most together: an activation written out, say."""
    code = read_code(recording)
    lines: dict[tuple[str, str], list[Source]] = {}
    for source in sizes:
        file = code.file(source.file)
        if file is not None and (function := file.enclosing(source.line)) is not None:
            lines.setdefault((file.name, function.name), []).append(source)
    for (file_name, function_name), own in lines.items():
        size = sum(sizes[source] for source in own)
        if len(own) < 2 or size <= HALF * detail.peak_bytes or not is_worth(recording, size, NOTABLE):
            continue
        called = [line for line in code.uses_by_any_name(function_name) if line.file == file_name]
        source = likeliest(code, called) or own[0]
        yield Finding(
            "peak-by-line", ADVICE,
            f"the {len(own)} lines of `{function_name}` have {size / detail.peak_bytes:.0%} of the device's peak",
            size, source, code.text(source),
            "compute its parts again on the way back (`tf.recompute_grad`), or use one op that does the same", None, "",
            size - size // len(own),
        )  # fmt: skip


_NO_LINE = ("fit", "function", "session", "gradient", "evaluate", "predict", "run")


def _of_nearly_equal(detail: Detail, sizes: Counter[Source]) -> Source:
    """The line with most; of several with nearly as much, one that only copies, widens or combines.

    What a product or a convolution makes is mostly wanted.
    """
    top = sizes.most_common(1)[0][1]
    near = [source for source, size in sizes.most_common() if size >= NEARLY_EQUAL * top]
    working = {
        detail.sites[a.site].source for a in detail.at_peak
        if a.start and any(word in detail.sites[a.site].kind for word in _WORK)
    }  # fmt: skip
    return next((source for source in near if source not in working), near[0])


def _first_of_its_form(code: Code, detail: Detail, source: Source, sizes: Counter[Source]) -> Source:
    """Of the lines of one function that make nearly as much, of the same form, the first: others go on from there."""
    file = code.file(source.file)
    function = file.enclosing(source.line) if file is not None else None
    if file is None or function is None:
        return source
    alike = [
        other for other, size in sizes.items()
        if other.file == source.file and file.enclosing(other.line) is function
        and size >= NEARLY_EQUAL * sizes[source] and _largest(detail, other)[1] == _largest(detail, source)[1]
    ]  # fmt: skip
    return min(alike, key=lambda other: other.line)


def _by_samples(recording: Recording) -> Iterator[Finding]:
    """No step tells what the peak is made of: the line that the script was on when the device had most."""
    samples = [s for s in inside(recording) if s.device_bytes is not None]
    top = max((s.device_peak_bytes or 0 for s in samples), default=0)
    usual = sorted(s.device_bytes or 0 for s in samples)
    lines = [s for s in samples if s.source is not None]
    high = [s.source for s in lines if (s.device_bytes or 0) > NEAR * top]
    high = high or [s.source for s in lines if (s.device_peak_bytes or 0) > NEAR * top]  # some time before
    size = top - usual[0] if usual else 0
    if high and is_worth(recording, size, NOTABLE):
        source = Counter(high).most_common(1)[0][0]
        yield Finding(
            "peak-by-line", ADVICE, f"on this line the device has {format_size(size)} more than at other times",
            size, source, read_code(recording).text(source),
            SMALLER,
            None, "", None,
        )  # fmt: skip


def _largest_at(detail: Detail, source: Source) -> Allocation:
    found = [a for a in detail.at_peak if a.start and detail.sites[a.site].source == source]
    return max(found, key=lambda a: a.chunk_bytes)


def _largest(detail: Detail, source: Source) -> tuple[int, str]:
    best = _largest_at(detail, source)
    return best.chunk_bytes, f"{best.dtype} {best.shape}".strip() or detail.sites[best.site].kind


def on_host(recording: Recording) -> Iterator[Finding]:
    """RSS was far higher for a moment than later, or rose on one line for good: the line that the script was on."""
    samples = [s for s in inside(recording) if s.rss_bytes is not None]
    if len(samples) < 4:
        return
    passing = list(_for_a_moment(recording, samples))
    yield from passing
    yield from (f for f in _for_good(recording, samples) if all(f.bytes > WANTED * other.bytes for other in passing))


def _for_a_moment(recording: Recording, samples: list[Sample]) -> Iterator[Finding]:
    top = max(samples, key=lambda s: s.rss_bytes or 0)
    later = sorted(s.rss_bytes or 0 for s in samples if s.time > top.time)
    if not later:
        return
    size = (top.rss_bytes or 0) - later[len(later) // 2]
    near = _line_near(samples, top)
    source = _changed_at(recording, near and (collected_for(read_code(recording), near) or near))
    least = LARGE if near in _training_lines(recording) else NOTABLE
    if source is not None and is_worth(recording, size, least) and not _in_step(recording, top.time):
        yield Finding(
            "host-peak", ADVICE, f"for a moment the process has {format_size(size)} more than later",
            size, source, read_code(recording).text(source),
            "build it in pieces, in the type that is needed, and let the parts go before the whole is used",
            None, "", size,
        )  # fmt: skip


def _for_good(recording: Recording, samples: list[Sample]) -> Iterator[Finding]:
    """The line on which most of the process's own memory came, and stayed: not the device's, nor a library's code."""
    code = read_code(recording)
    training = _training_lines(recording)
    sizes: Counter[Source] = Counter()
    for first, last in _visits(samples):
        source = samples[last].source
        if not first or source is None or source in training:
            continue
        if not isinstance(code.statement(source), ast.Import | ast.ImportFrom):
            sizes[source] += _left(samples[first - 1], samples[last : last + 2])
    kept = {line: min(left, _stayed(samples, line)) for line, left in sizes.items()}
    source, size = max(kept.items(), key=lambda pair: pair[1], default=(None, 0))
    source = _changed_at(recording, source)
    if source is not None and is_worth(recording, size, NOTABLE):
        copied = " and ".join(f"`{name}`" for name in copied_and_kept(code, source))
        beside = f": a copy of {copied}, which stays as well" if copied else ""
        fix = "keep it smaller: a narrower type, a sparse or packed form, pieces as they are needed"
        if copied:
            fix = f"`del` {copied} when it is made, or fill it part by part; to split or shuffle, keep indices only"
        yield Finding(
            "host-peak", ADVICE, f"on this line the process takes {format_size(size)}, and keeps it{beside}",
            size, source, code.text(source), fix, None, "", size if copied else None,
        )  # fmt: skip


def _training_lines(recording: Recording) -> set[Source | None]:
    """Lines that train: what comes there besides is graphs, threads, their arenas."""
    return {step.source for step in recording.steps if step.kind in TRAINING_KINDS}


def _left(before: Sample, after: list[Sample]) -> int:
    """What a line left, without the device's: what it needs for itself alone is gone when the next one runs."""
    taken = max(0, (after[0].reserved_bytes or 0) - (before.reserved_bytes or 0))
    return min(sample.rss_bytes or 0 for sample in after) - (before.rss_bytes or 0) - taken


def _visits(samples: list[Sample]) -> Iterator[tuple[int, int]]:
    """The first and the last of each row of samples on one line."""
    first = 0
    for at in range(1, len(samples) + 1):
        if at == len(samples) or samples[at].source != samples[first].source:
            yield first, at - 1
            first = at


def _stayed(samples: list[Sample], source: Source) -> int:
    """By how much the process is larger after a line than it was before it, most of the time."""
    on = [at for at, sample in enumerate(samples) if sample.source == source]
    later = sorted(sample.rss_bytes or 0 for sample in samples[on[-1] + 1 :] or samples[on[-1] :])
    return later[len(later) // 2] - (samples[max(0, on[0] - 1)].rss_bytes or 0)


def _changed_at(recording: Recording, source: Source | None) -> Source | None:
    """The line to change for what another does: it says how large, or keeps what a generator or a function gives."""
    code = read_code(recording)
    ways = (sized_by, taken_from, made_empty, collected_by)
    return source and next((line for way in ways if (line := way(code, source)) is not None), source)


def held(recording: Recording) -> Iterator[Finding]:
    """The one array or tensor of a name of the user's that has most of the run's peak."""
    code = read_code(recording)
    single = [r for r in recording.census if r.kind in ("array", "tensor") and r.objects == 1 and is_users(r.holder)]
    made = ((row, likeliest(code, code.assigns(names_in(row.holder)[0]))) for row in single)
    row, source = max((pair for pair in made if pair[1]), key=lambda pair: pair[0].bytes, default=(None, None))
    if row is None or not is_worth(recording, row.bytes, ONE_NAME):
        return
    source = _changed_at(recording, source)
    yield Finding(
        "held-by-name", ADVICE, f"`{row.holder.partition(' (')[0]}`, {row.example}, is held through the run",
        row.bytes, source, code.text(source),
        "keep it in the form it came in (uint8, a file, a generator) and make each batch of it when it is needed",
        None, row.holder, None,
    )  # fmt: skip


def _line_near(samples: list[Sample], top: Sample) -> Source | None:
    near = [s for s in samples if s.source is not None and abs(s.time - top.time) <= SOON]
    return min(near, key=lambda s: abs(s.time - top.time)).source if near else None


def _in_step(recording: Recording, time: float) -> bool:
    return any(step.start <= time <= step.stop for _, step in main_steps(recording))


def reserved(recording: Recording) -> Iterator[Finding]:
    """A GPU's memory that TensorFlow has taken and never used. On a CPU it is only address space."""
    device = next((d for d in recording.run.machine.devices if "GPU" in d.name), None)
    taken = reserve_unused(recording)
    if device is None or taken is None or taken[1] < IDLE * taken[0] or not is_worth(recording, taken[1]):
        return
    yield Finding(
        "reserved-unused", ADVICE, f"{format_size(taken[1])} reserved on {device.name} were never in use",
        taken[1], None, "", "tf.config.experimental.set_memory_growth(gpu, True), or a limit for the logical device",
        None, "", taken[1],
    )  # fmt: skip


def fragmented(recording: Recording) -> Iterator[Finding]:
    """A request was refused although more than it asked for was free, in pieces."""
    refusal, detail = recording.outcome.refusal, fullest_detail(recording)
    if refusal is None or refusal.requested_bytes is None or detail is None or detail.reserved_bytes is None:
        return
    free = detail.reserved_bytes - detail.begin_bytes
    largest = detail.largest_free_bytes or 0
    if free >= refusal.requested_bytes > largest:
        yield Finding(
            "fragmentation", PROBLEM,
            f"{format_size(free)} were free, the largest piece {format_size(largest)}: less than was asked for",
            free - largest, refusal.source, read_code(recording).text(refusal.source),
            "TF_GPU_ALLOCATOR=cuda_malloc_async on a GPU; allocate large things first; keep fewer small tensors",
            None, "", free - largest,
        )  # fmt: skip


def swapped(recording: Recording) -> Iterator[Finding]:
    """Pages of the process that the kernel put on a disk: what is resident is less than what is in use."""
    sizes = [(s.swap_bytes or 0, s.time) for s in recording.samples]
    size, time = max(sizes, default=(0, 0.0))
    if is_worth(recording, size, SWAPPED):
        samples = [s for s in inside(recording) if s.source is not None]
        source = min(samples, key=lambda s: abs(s.time - time)).source if samples else None
        yield Finding(
            "swapped-out", PROBLEM, f"{format_size(size)} of the process were swapped out", size, source,
            read_code(recording).text(source),
            "the machine is too small for what the process holds: stream the data, or lower the batch", None, "", size,
        )  # fmt: skip


def known_bugs(recording: Recording) -> Iterator[Finding]:
    """What the versions of this run are known to do, where the script uses it and no other rule has to find it."""
    detail = fullest_detail(recording)
    code = read_code(recording)
    for known in known_on(recording.run.versions):
        lines = code.names(*known.names) if known.names else []
        size = by_category(detail)[known.bytes_of] if detail is not None and lines else 0
        if lines and is_worth(recording, size):
            yield Finding(
                "known-bug", ADVICE, f"{known.title}: {format_size(size)} of {known.bytes_of} here", size, lines[-1],
                code.text(lines[-1]), known.remedy, None, "", None,
            )  # fmt: skip
