"""What stages of tf.data have waiting: buffers, caches, windows, and the sources that an interleave holds open."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from lowtide.diagnose.code import Code, read_code
from lowtide.diagnose.evidence import alive_pipelines, is_worth, likeliest
from lowtide.diagnose.origins import lines_given
from lowtide.diagnose.syntax import Span
from lowtide.diagnose.trends import rise
from lowtide.diagnose.types import ADVICE, PROBLEM, Finding
from lowtide.program import Source
from lowtide.record import Recording
from lowtide.record.extremes import fullest_stages
from lowtide.record.types import UNSEEN
from lowtide.record.views import fullest_detail
from lowtide.units import format_size

NOTABLE = 0.05


def buffers(recording: Recording) -> Iterator[Finding]:
    """What stages of tf.data have waiting: shuffle, cache, prefetch, interleave, parallel map."""
    for name, id_, fix in _STAGES:
        for source, (size, elements) in _waiting(recording, name).items():
            if id_ == "cached-in-memory":
                # The fullest it was seen; it fills on between two looks, and the device's rise is of nothing else.
                size = max(size, rise(recording, "device_bytes"))
            if is_worth(recording, size, NOTABLE):
                tuned = id_ in TUNED and "AUTOTUNE" in read_code(recording).text(source)
                kind = ("autotune-buffers", TUNED_FIX) if tuned else (id_, fix)
                inner = _buffered_inside(recording, source, elements) if name == "interleave" else None
                if inner is not None:
                    kind, source = inner
                if source is None and not _only_call(recording, name):
                    continue  # a library's own, which nobody asked for
                yield _buffer(recording, *kind, source, size, elements)


def _waiting(recording: Recording, name: str) -> dict[Source | None, tuple[int, int]]:
    """Bytes and elements of one kind of stage, by line: as the pipeline counts them, or the detailed steps."""
    found: dict[Source | None, tuple[int, int]] = {}
    for stage in fullest_stages(recording):
        if name in stage.name.lower():
            source = stage.source or _only_call(recording, name)
            here = stage.buffered_bytes, stage.buffered_elements
            found[source] = max(found.get(source, (0, 0)), here)  # of one iterator: keeping many is another rule's
    for source, counted in _seen_on_device(recording).items():
        if _stage_of(read_code(recording).text(source)) == name and counted[0] > found.get(source, (0, 0))[0]:
            found[source] = counted
    if name == "interleave":
        for source, counted in _open_sources(recording).items():
            found[source] = max(found.get(source, (0, 0)), counted)
    return found


def _open_sources(recording: Recording) -> dict[Source, tuple[int, int]]:
    """What the functions of interleaves made and their open sources hold, by the line of the interleave: a dataset made
    of tensors holds them until it has been read to its end, and no pipeline counts them."""
    code = read_code(recording)
    spans = dict(_sources_of_interleaves(code))
    found: dict[Source, tuple[int, int]] = {}
    for detail in recording.details:
        for line, span in spans.items():
            sources = ((detail.sites[a.site].source, a.chunk_bytes) for a in detail.at_peak)
            sizes = [size for at, size in sources if at and at.file == line.file and at.line in span]
            found[line] = max(found.get(line, (0, 0)), (sum(sizes), len(sizes)))
    return found


def _buffered_inside(
    recording: Recording, interleave: Source | None, elements: int
) -> tuple[tuple[str, str], Source] | None:
    """The one line in the function of an interleave that has a buffer for each open source, and what to say of it.

    Of a shuffle where the buffer is more than the sources are many: else they are too many.
    """
    code = read_code(recording)
    spans = [span for line, span in _sources_of_interleaves(code) if line == interleave]
    found = [
        ((id_, f"each open source has this buffer: {name} after the interleave, once"), line)
        for name, id_ in (("prefetch", "prefetch-buffer"), ("shuffle", "shuffle-buffer"))
        for line, call in code.calls(f".{name}")
        if any(line.line in span for span in spans) and (name == "prefetch" or _size(code, line, call) ** 2 > elements)
    ]
    return found[0] if len(found) == 1 else None


def _size(code: Code, line: Source, call: ast.Call) -> int:
    """The buffer that a stage asks for; 0 where it cannot be told."""
    file, sizes = code.file(line.file), [*call.args, *(k.value for k in call.keywords if k.arg == "buffer_size")]
    return file.number(sizes[0]) if file and sizes else 0


def _sources_of_interleaves(code: Code) -> Iterator[tuple[Source, Span]]:
    """Lines that interleave, with the lines of the function that opens a source."""
    for line, call in code.calls(".interleave"):
        span = lines_given(code, line, call.args[0]) if call.args else None
        if span is not None:
            yield line, span


def _only_call(recording: Recording, name: str) -> Source | None:
    code = read_code(recording)
    return likeliest(code, [line for line, _ in code.calls(f".{name}")])


def _stage_of(text: str) -> str:
    """The stage that a statement makes: what multiplies buffers comes first."""
    named = [name for name in ("interleave", "cache", "shuffle", "prefetch") if f".{name}(" in text]
    return named[0] if named else "map" if ".map(" in text and "num_parallel_calls" in text else ""


def _seen_on_device(recording: Recording) -> dict[Source | None, tuple[int, int]]:
    detail = fullest_detail(recording)
    found: dict[Source | None, tuple[int, int]] = {}
    for a in detail.at_peak if detail else ():
        site = detail.sites[a.site] if detail else None
        if site is not None and site.op.startswith("tf.data") and site.source is not None:
            size, count = found.get(site.source, (0, 0))
            found[site.source] = size + a.chunk_bytes, count + 1
    number = max(1, len(alive_pipelines(recording)))
    return {source: (size // number, count // number) for source, (size, count) in found.items()}


MUCH_MEANT = 0.25
"""What a cache or a window keeps is meant; of this part of all memory it is a problem."""


def grouped(recording: Recording) -> Iterator[Finding]:
    """Rows that wait until their window or bucket is full: as many as there are keys, times the size of a window."""
    code = read_code(recording)
    calls = [line for line, _ in code.calls(".group_by_window", ".bucket_by_sequence_length")]
    waiting = [n for source, n in _seen_on_device(recording).items() if not _stage_of(code.text(source))]
    size, rows = (sum(column) for column in zip((0, 0), *waiting, strict=True))
    if not code.calls(".shuffle", ".cache"):
        size, rows = max((size, rows), _nobodys(recording))
    if not calls or not is_worth(recording, size, NOTABLE):
        return
    severity = PROBLEM if is_worth(recording, size, MUCH_MEANT) else ADVICE
    yield Finding(
        "grouped-in-memory", severity, f"{rows:,} rows wait until their window or bucket is full",
        size, calls[-1], code.text(calls[-1]), "a smaller window_size or bucket_batch_sizes, or fewer keys", None, "",
        size - size // max(1, rows),
    )  # fmt: skip


def _nobodys(recording: Recording) -> tuple[int, int]:
    """Bytes and buffers that no op, tensor or variable has, where the device is fullest: rows of unknown length."""
    detail = fullest_detail(recording)
    sites = detail.sites if detail else ()
    sizes = [
        a.chunk_bytes for a in (detail.at_peak if detail else ())
        if not a.start and sites[a.site].op == UNSEEN and sites[a.site].source is None
    ]  # fmt: skip
    return sum(sizes), len(sizes)


TUNED = ("prefetch-buffer", "interleave-buffers", "parallel-map-buffer")
TUNED_FIX = "options.autotune.ram_budget limits what tuning may take (half of the free RAM by itself); or fixed sizes"
_STAGES = (
    ("shuffle", "shuffle-buffer", "some hundred elements shuffle well enough; shuffle names or indices, not images"),
    ("cache", "cached-in-memory", "give cache() a file name, cache before decoding, or leave it out"),
    ("prefetch", "prefetch-buffer", "prefetch counts elements of the stage before it: after batch(), 2 are enough"),
    ("interleave", "interleave-buffers", "lower cycle_length: each open source has buffers of its own"),
    ("map", "parallel-map-buffer", "lower num_parallel_calls, or set options.autotune.ram_budget"),
)  # fmt: skip


def _buffer(recording: Recording, id_: str, fix: str, source: Source | None, size: int, elements: int) -> Finding:
    one = size // max(1, elements)
    needed = min(size, one * (200 if id_ == "shuffle-buffer" else 2))
    saving = size - needed if id_ != "cached-in-memory" else size
    much = MUCH_MEANT if id_ == "cached-in-memory" else 2 * NOTABLE
    severity = PROBLEM if is_worth(recording, saving, much) else ADVICE
    plural = "" if elements == 1 else "s"
    many = f"{elements:,} element{plural} of {format_size(one)}" if id_ != "cached-in-memory" else format_size(size)
    name = id_.partition("-")[0]
    article = "an" if name[0] in "aeiou" else "a"
    return Finding(
        id_, severity, f"{article} {name} stage of tf.data has {many} waiting",
        size, source, read_code(recording).text(source), fix, None, "", saving,
    )  # fmt: skip
