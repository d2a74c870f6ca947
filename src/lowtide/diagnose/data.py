"""Data: copied whole, in float64, buffered by tf.data, collected by predict."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from lowtide.diagnose.code import read_code
from lowtide.diagnose.evidence import is_worth, last_census, likeliest, line_that_keeps
from lowtide.diagnose.origins import multiplied_for, returned_by, returned_to, widened_for
from lowtide.diagnose.syntax import names_passed
from lowtide.diagnose.types import ADVICE, PROBLEM, Finding
from lowtide.program import Source
from lowtide.record import Data, Held, Recording
from lowtide.record.views import device_peak, fullest_detail, inside, main_steps
from lowtide.units import format_size

NOTABLE = 0.05
COPIES = ("from_tensor_slices", "from_tensors", "tf.constant", "tf.convert_to_tensor")
PADDED = 0.75
"""Batches with less padding than this are as one finds them."""
MUCH_COPIED = 0.1
"""A copy of less of the run's peak is no problem: it is the plain way to begin."""
GIVEN = ("fit", "evaluate", "predict")
MANY_KEPT = 8


def float64(recording: Recording) -> Iterator[Finding]:
    """An array of float64 where the model computes in float32: twice the bytes, and again in each copy."""
    for given in _once(d for d in recording.data if d.dtype == "float64" and d.what != "returned by predict"):
        alike = [d for d in recording.data if (d.dtype, d.shape) == ("float64", given.shape)]
        copies = sum(d.bytes for d in alike if d is not given)
        saving = (given.bytes + copies) // 2
        if is_worth(recording, saving, NOTABLE):
            source = _made_at(recording, given)
            yield Finding(
                "float64-data", PROBLEM, f"{given.what} is given float64 {given.shape}: float32 is what the model uses",
                given.bytes + copies, source, read_code(recording).text(source),
                "make it float32 from the start (`dtype=\"float32\"`): `.astype` afterwards has both for a while",
                None, "", saving,
            )  # fmt: skip
    yield from _float64_model(recording)
    yield from _float64_kept(recording)


def _float64_model(recording: Recording) -> Iterator[Finding]:
    """The model itself is of float64: parameters, activations, gradients, optimizer slots."""
    detail = fullest_detail(recording)
    wide = [a for a in detail.at_peak if a.dtype in ("float64", "double")] if detail else []
    size = sum(a.chunk_bytes for a in wide)
    if detail is None or not is_worth(recording, size, 2 * NOTABLE):
        return
    code = read_code(recording)
    set_so = [line for line, call in code.calls(*_SETS_TYPE) if "float64" in ast.unparse(call)]
    largest = max(wide, key=lambda a: a.chunk_bytes)
    source = set_so[-1] if set_so else detail.sites[largest.site].source
    yield Finding(
        "float64-data", PROBLEM, f"the step computes in float64: {len(wide)} buffers of it at the peak",
        size, source, code.text(source), "float32, the default, has half the bytes and is precise enough to train",
        None, "", size // 2,
    )  # fmt: skip


def _float64_kept(recording: Recording) -> Iterator[Finding]:
    """Many arrays of float64 that the script keeps: a replay buffer of frames that were divided by 255."""
    code = read_code(recording)
    for row in last_census(recording):
        if row.kind != "array" or row.objects < MANY_KEPT or not row.example.startswith("float64"):
            continue
        keeps = line_that_keeps(recording, row)
        source = widened_for(code, keeps) if keeps is not None else None
        if source is not None and is_worth(recording, row.bytes, 2 * NOTABLE):
            yield Finding(
                "float64-data", PROBLEM, f"{row.objects:,} arrays of {row.example} are kept, float32 is half of it",
                row.bytes, source, code.text(source),
                "keep them as they came (`uint8`), or make them float32 here: `.astype(\"float32\")`", None, row.holder,
                row.bytes // 2,
            )  # fmt: skip


_SETS_TYPE = ("set_floatx", "set_dtype_policy", "set_global_policy")


def queued(recording: Recording) -> Iterator[Finding]:
    """Batches that wait in a queue, made by workers that are faster than the steps: a PyDataset's, or the script's."""
    code = read_code(recording)
    waiting = [row for row in recording.census if row.kind in ("array", "tensor") and ".queue (deque of" in row.holder]
    most = max(waiting, key=lambda row: row.bytes, default=None)
    name = most.holder.partition(" (")[0].split(".")[-2] if most is not None else ""
    # One that only ever fills is a leak, and the line that puts things there is named for it.
    empties = most is not None and (most not in last_census(recording) or code.takes_from(name))
    if most is not None and empties and is_worth(recording, most.bytes, 2 * NOTABLE):
        source = likeliest(code, code.assigns(name)) or most.held_at
        yield Finding(
            "queued-batches", PROBLEM, f"{most.objects:,} of {most.example} wait in the queue `{name}`", most.bytes,
            source, code.text(source), "queue.Queue(maxsize=4): `put` then waits until a batch was taken", None,
            most.holder, most.bytes - 4 * most.bytes // most.objects,
        )  # fmt: skip
    lines = code.names("max_queue_size")
    steps = main_steps(recording)
    if not lines or not steps:
        return
    samples = [s for s in inside(recording) if s.rss_bytes is not None and s.time >= steps[0][1].start]
    sizes = [(s.rss_bytes or 0) - (s.reserved_bytes or 0) for s in samples]
    size = max(sizes) - min(sizes[0], sizes[-1]) if sizes else 0
    if is_worth(recording, size, 2 * NOTABLE):
        yield Finding(
            "queued-batches", PROBLEM, f"batches wait in the queue of a PyDataset: {format_size(size)} at the most",
            size, lines[-1], code.text(lines[-1]), "a max_queue_size of a few batches is enough: workers fill it again",
            None, "", size,
        )  # fmt: skip


def _once(found: Iterator[Data]) -> list[Data]:
    """One row a shape: the first call that was given it."""
    return list({row.shape: row for row in reversed(list(found))}.values())


def _made_at(recording: Recording, given: Data) -> Source | None:
    """The line that made what a call was given: the function that its first argument comes from, the
    assignment of the name among its arguments; else the call."""
    code = read_code(recording)
    if given.source is not None and (inside := returned_to(code, given.source)) is not None:
        return inside
    form = f"{given.dtype} {given.shape}"
    held = [r for r in recording.census if r.kind == "array" and r.example == form and r.holder]
    names = [name for row in held for name in row.holder.partition(" (")[0].split(".")[-1:]]
    names += _arguments(recording, given.source)
    for name in names:
        lines = [line for line in code.assigns(name) if line not in code.fills(name, 1)]
        if given.dtype == "float64":
            lines = [line for line in lines if "float32" not in code.as_it_ran(line)]
        found = likeliest(code, lines)
        if found is not None:
            return returned_by(code, found, name)
    return given.source


def _arguments(recording: Recording, source: Source | None) -> list[str]:
    file = read_code(recording).file(source.file) if source else None
    statement = file.statement(source.line) if file and source else None
    return names_passed(statement) if statement is not None else []


def copied(recording: Recording) -> Iterator[Finding]:
    """A whole dataset copied into a tensor, while the array stays as well."""
    for one in recording.data:
        given = one._replace(bytes=one.bytes * _datasets_of(recording, one))
        if given.what not in COPIES or not is_worth(recording, given.bytes, NOTABLE):
            continue
        if any(d.what in GIVEN and d.source == given.source for d in recording.data):
            continue  # fit's own copy: named as fit's
        alive = any(r.kind == "array" and r.example == f"{given.dtype} {given.shape}" for r in recording.census)
        if given.mapped or alive:
            yield _copied(recording, given)


def _datasets_of(recording: Recording, given: Data) -> int:
    """How many datasets from one line lived at once, each with a copy of its own: one, when no census says more."""
    made = [r.objects for r in recording.census if r.kind == "dataset" and r.made == given.source]
    return max(made, default=1) if given.what == "from_tensor_slices" else 1


def _copied(recording: Recording, given: Data) -> Finding:
    what = "a file mapped into memory is" if given.mapped else "an array is"
    id_ = "dataset-in-constant" if given.what.startswith("tf.") else "dataset-copied"
    severity = PROBLEM if is_worth(recording, given.bytes, MUCH_COPIED) else ADVICE
    return Finding(
        id_, severity, f"{what} copied whole into a tensor by {given.what}: {given.dtype} {given.shape}",
        given.bytes, given.source, read_code(recording).text(given.source),
        "read it in pieces: a generator over slices, or keras.utils.PyDataset; convert one batch at a time",
        None, "", given.bytes,
    )  # fmt: skip


def given_to_fit(recording: Recording) -> Iterator[Finding]:
    """What fit and its like copy of an array that is larger than the rest of the run."""
    for given in _once(d for d in recording.data if d.what in GIVEN and d.dtype != "float64"):
        if not is_worth(recording, given.bytes, NOTABLE if given.mapped else 4 * NOTABLE):
            continue
        cast = _made_at(recording, given)
        if given.dtype == "float32" and cast is not None and _casts(read_code(recording).statement(cast)):
            yield Finding(
                "array-given-to-fit", ADVICE,
                f"{given.what} is given {given.dtype} {given.shape}, all of it cast or scaled before the first batch",
                given.bytes, cast, read_code(recording).text(cast),
                "keep it as it was and cast a batch at a time: keras.layers.Rescaling, or a cast in Dataset.map",
                None, "", None,
            )  # fmt: skip
        else:
            what = "mapped file" if given.mapped else "array"
            yield Finding(
                "array-given-to-fit", PROBLEM if given.mapped else ADVICE,
                f"{given.what} copies the whole {what}: {given.dtype} {given.shape}",
                given.bytes, given.source, read_code(recording).text(given.source),
                "give it a keras.utils.PyDataset that cuts batches: nothing is copied but the batch",
                None, "", given.bytes,
            )  # fmt: skip


def _casts(statement: ast.stmt | None) -> bool:
    """Whether a statement makes floats of what it is given: a cast, or a division by a number."""
    for node in ast.walk(statement) if statement is not None else ():
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "astype":
            return True
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and isinstance(node.right, ast.Constant):
            return True
    return False


def collected(recording: Recording) -> Iterator[Finding]:
    """predict puts the outputs of all batches together; a problem where they are thrown away soon after."""
    for given in _once(d for d in recording.data if d.what == "returned by predict"):
        if not is_worth(recording, given.bytes, NOTABLE):
            continue
        alive = any(r.kind == "array" and r.example == f"{given.dtype} {given.shape}" for r in recording.census)
        yield Finding(
            "predict-collects", ADVICE if alive or not is_worth(recording, given.bytes, 2 * NOTABLE) else PROBLEM,
            f"predict collects {given.dtype} {given.shape}{'' if alive else ', which is not kept'}",
            given.bytes, given.source, read_code(recording).text(given.source),
            "go through the data in batches with predict_on_batch or a tf.function, and keep what is needed of each",
            None, "", given.bytes,
        )  # fmt: skip


def many_times(recording: Recording) -> Iterator[Finding]:
    """An array that has another several times over: all augmentations at once, all windows of a series."""
    code = read_code(recording)
    arrays: dict[str, Held] = {}
    for row in recording.census:
        name = row.holder.partition(" (")[0]
        if row.kind == "array" and row.objects == 1 and name.isidentifier():
            arrays[name] = max(row, arrays.get(name, row), key=lambda r: r.bytes)
    for name, row in arrays.items():
        for line in code.assigns(name):
            found = multiplied_for(code, line, name)
            parts = sum(arrays[part].bytes for part in found.names if part in arrays and part != name)
            if (parts or found.surely) and row.bytes >= 2 * parts and is_worth(recording, row.bytes, NOTABLE):
                copies = [r.bytes for r in recording.census if r.kind == "tensor" and r.example == row.example]
                size = row.bytes + max(copies, default=0)
                made = returned_by(code, line, name)
                yield _many_times(recording, row.example, size, made, found.names, parts, row.holder)
    for given in _once(d for d in recording.data if d.what in COPIES):  # and then let go, but for the copy
        names = [name for name in _arguments(recording, given.source) if name not in arrays]
        file = given.source.file if given.source else None
        # Of several that are gone nobody knows whose copy it is.
        lines = [(line, name) for name in names for line in code.assigns(name, file)] if len(names) == 1 else []
        surely = ((line, found.names) for line, name in lines if (found := multiplied_for(code, line, name)).surely)
        example = f"{given.dtype} {given.shape}"
        is_told = any(row.example.partition(" ")[2] == given.shape for row in arrays.values())  # or is of another array
        if not is_told and is_worth(recording, given.bytes, NOTABLE) and (first := next(surely, None)) is not None:
            yield _many_times(recording, example, given.bytes, *first, 0, "")


def _many_times(
    recording: Recording, example: str, size: int, line: Source, names: Iterable[str], parts: int, holder: str
) -> Finding:
    others = ", ".join(f"`{name}`" for name in sorted(names))
    return Finding(
        "array-many-times", PROBLEM, f"{example} has what is in {others} many times over",
        size, line, read_code(recording).text(line),
        "make each batch when it is needed, from the array itself: a generator, keras.utils.PyDataset, a map of "
        "tf.data, keras.utils.timeseries_dataset_from_array", None, holder, size - parts,
    )  # fmt: skip


def padded(recording: Recording) -> Iterator[Finding]:
    """Batches that are mostly padding, because one row is far longer than the others."""
    lines: dict[Source | None, Data] = {}
    for given in recording.data:
        if given.filled_bytes is not None and given.bytes > lines.get(given.source, given).bytes - 1:
            lines[given.source] = given
    for source, given in lines.items():
        empty = 1 - (given.filled_bytes or 0) / max(1, given.bytes)
        size = max(given.bytes, _shaped_like(recording, given.shape))
        if empty >= PADDED and is_worth(recording, size * empty, NOTABLE):
            yield Finding(
                "mostly-padding", PROBLEM,
                f"{empty:.0%} of {given.dtype} {given.shape} is padding up to the longest row, as in all made of it",
                size, source, read_code(recording).text(source),
                "put rows of like length together (`bucket_by_sequence_length`), cut the longest (`shape=`, "
                "`padded_shapes=`), or compute on a RaggedTensor's `flat_values`", None, "", round(size * empty),
            )  # fmt: skip


def _shaped_like(recording: Recording, shape: str) -> int:
    """What a step has at its peak with the first two dimensions of a batch: the batch, and what is made of it."""
    first = ",".join(re.findall(r"\d+", shape)[:2]) + ","
    sizes = [
        sum(a.chunk_bytes for a in detail.at_peak if (",".join(re.findall(r"\d+", a.shape)) + ",").startswith(first))
        for detail in recording.details
    ]
    samples = [s for s in inside(recording) if s.device_bytes is not None]
    low, high = min((s.device_bytes or 0 for s in samples), default=0), device_peak(recording)
    # Without a detailed step, all that the run has on the device for a while is taken to be of it.
    return max(sizes) if sizes else high.bytes - low if high else 0
