"""The step's peak: what was alive there that need not have been, and what a change would save."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from lowtide.diagnose.code import Code, read_code
from lowtide.diagnose.evidence import is_worth, likeliest, step_of
from lowtide.diagnose.origins import lines_given, runs_in
from lowtide.diagnose.syntax import unchanged_in
from lowtide.diagnose.types import ADVICE, PROBLEM, Finding
from lowtide.program import Source
from lowtide.record import TRAINING_KINDS, Allocation, Detail, Recording
from lowtide.record.views import by_category, device_peak, fullest_detail, inside
from lowtide.units import format_size

NOTABLE = 0.05
LARGE_PART, PART = 0.25, 0.12
ONE_LINE = 0.5
"""One tensor with this part of all activations is a line's own affair: the peak's line is named instead."""
TURNS = 8
"""So many buffers of one shape, from one op of a loop, are its turns."""
_GATHERS = ("gather", "embedding_lookup", "gather_nd", "boolean_mask")
_DENSE = ("convert_to_tensor", "clip_by", "global_norm", "tf.norm", "add_n", "reduce_")
"""What makes a sparse gradient dense when it is given one."""
_ASKS = ("gradient", "minimize", "apply", "fit(", "train_on_batch")
"""Lines that ask for gradients, or hand them on: none of them makes one dense."""


def dense_gradient(recording: Recording) -> Iterator[Finding]:
    """Rows were gathered from a table, and its gradient was made as large as the table."""
    detail = fullest_detail(recording)
    if detail is None:
        return
    scopes = _optimizer_scopes(detail)
    shapes = {a.shape for a in detail.allocations if _sums_rows(detail, a) and not _is_in(scopes, detail, a)}
    for shape in shapes:
        alike = [a for a in detail.at_peak if _plain(a.shape) == _plain(shape) and a.start]
        size = sum(a.chunk_bytes for a in alike)
        source = _gathered_at(recording, detail, shape)
        if _plain(shape) and source is not None and is_worth(recording, size, NOTABLE):
            yield Finding(
                "dense-gradient", PROBLEM,
                f"the gradient of a gathered table {shape} is dense: {len(alike)} buffers of its size at the peak",
                size, source, read_code(recording).text(source),
                "keep it sparse: gather from the variable itself; no regularizer, norm or clipping on the table",
                None, "", size,
            )  # fmt: skip


def _sums_rows(detail: Detail, allocation: Allocation) -> bool:
    return _kind(detail, allocation) in ("UnsortedSegmentSum", "SparseSegmentSumGrad")


def _optimizer_scopes(detail: Detail) -> frozenset[str]:
    """The names that ops of an optimizer's update begin with: those of its slots."""
    slots = [detail.sites[a.site].op for a in detail.allocations if a.category == "optimizer state"]
    return frozenset(op.partition("/")[0] for op in slots if "/" in op)


def _is_in(scopes: frozenset[str], detail: Detail, allocation: Allocation) -> bool:
    return detail.sites[allocation.site].op.partition("/")[0] in scopes


def _kind(detail: Detail, allocation: Allocation) -> str:
    return detail.sites[allocation.site].kind


def _plain(shape: str) -> str:
    return re.sub(r"[^\d,]", "", shape).strip(",")


def _gathered_at(recording: Recording, detail: Detail, shape: str) -> Source | None:
    """The layer that has the table; the line that gathers, where a layer has none."""
    code = read_code(recording)
    tables = [
        detail.sites[a.site] for a in detail.allocations
        if a.category == "parameters" and _plain(a.shape) == _plain(shape)
    ]  # fmt: skip
    penalty = likeliest(code, [line for line, _ in code.calls("l2_loss")])
    layer = next((site.source for site in tables if site.layer and site.source), None)
    if penalty is not None or layer is not None:
        return penalty or layer
    summed = [detail.sites[a.site].source for a in detail.allocations if _kind(detail, a) == "UnsortedSegmentSum"]
    known = [line for line in summed if line is not None]
    made = [line for line in known if any(word in code.text(line) for word in _DENSE)]
    near = [line for line in known if any(word in code.text(line) for word in _GATHERS)]
    calls = likeliest(code, [line for line, _ in code.calls(*_GATHERS)])
    added = [line for line in known if not any(word in code.text(line) for word in _ASKS)]
    return next(iter([*made, *near, *added]), None) or calls or next(iter(known), None)


def loop_stack(recording: Recording) -> Iterator[Finding]:
    """Each turn of a loop keeps its intermediates for the way back."""
    best: tuple[int, Detail, list[Allocation]] | None = None
    for detail in recording.details:
        for alive in (_left(detail), [a for a in detail.at_peak if a.start]):
            stacked = _stacked(detail, alive)
            size = sum(a.chunk_bytes for a in stacked)
            if best is None or size > best[0]:
                best = (size, detail, stacked)
    if best is None or not is_worth(recording, best[0], NOTABLE):
        return
    size, detail, stacked = best
    turns = max(Counter(a.site for a in stacked).values())
    if longer := _grows_in_loop(recording, stacked):
        yield Finding(
            "loop-keeps-every-turn", PROBLEM, f"a loop makes a tensor longer in each of {turns} turns and keeps all",
            size, longer, read_code(recording).text(longer),
            "write to a tf.TensorArray and stack() it after the loop: then each turn keeps only its own part", None, "",
            size - round(2 * size / turns),
        )  # fmt: skip
        return
    source = _loop_line(recording, detail, stacked)
    if (same := _same_each_turn(recording, detail, stacked)) and _goes_backward(detail):
        yield Finding(
            "loop-keeps-every-turn", _severity(recording, size),
            f"a loop computes in each of {turns} turns what is the same in all, and keeps it for its gradient",
            size, same, read_code(recording).text(same),
            "compute it once before the loop: the loop then keeps none of it", None, "", size - round(size / turns),
        )  # fmt: skip
        return
    if not _goes_backward(detail):
        source = _written_in_loop(recording) or source
        yield Finding(
            "loop-keeps-every-turn", _severity(recording, size), f"a loop writes a result in each of {turns} turns and "
            "no gradient needs them", size, source, read_code(recording).text(source),
            "carry what is needed after the loop as a loop variable (tf.foldl, `return_sequences=False`), or "
            "write one turn in so many", None, "", size - round(size / turns),
        )  # fmt: skip
        return
    yield Finding(
        "loop-keeps-every-turn", _severity(recording, size), f"a loop keeps {turns} turns for its gradient",
        size, source, read_code(recording).text(source),
        "cut the loop into segments with tf.stop_gradient between them (truncated back-propagation), or recompute the "
        "body: tf.recompute_grad", None, "", round(size * (1 - 1 / max(2, turns**0.5))),
    )  # fmt: skip


def _grows_in_loop(recording: Recording, stacked: Sequence[Allocation]) -> Source | None:
    """The line of a loop that adds to a tensor, where most of what is kept is of one op and of ever more bytes."""
    sizes: dict[int, set[int]] = {}
    for a in stacked:
        sizes.setdefault(a.site, set()).add(a.requested_bytes)
    growing = sum(a.chunk_bytes for a in stacked if len(sizes[a.site]) >= TURNS)
    if 2 * growing < sum(a.chunk_bytes for a in stacked):
        return None
    code = read_code(recording)
    return likeliest(code, [line for line in code.adds_to_itself("concat", "stack", "append") if code.in_loop(line)])


def _goes_backward(detail: Detail) -> bool:
    own = [a for a in detail.allocations if a.start]
    return any(a.category == "gradients" or "gradient" in detail.sites[a.site].op for a in own)


def _written_in_loop(recording: Recording) -> Source | None:
    """The line of a loop that writes to a TensorArray."""
    code = read_code(recording)
    calls = code.calls("while_loop")
    bodies = [span for line, call in calls for given in call.args if (span := lines_given(code, line, given))]
    writes = [line for line, _ in code.calls(".write")]
    inside = [line for line in writes if code.in_loop(line) or any(line.line in span for span in bodies)]
    return likeliest(code, inside)


def _left(detail: Detail) -> list[Allocation]:
    return [a for a in detail.allocations if a.start and a.stop is None]


def _stacked(detail: Detail, alive: Sequence[Allocation]) -> list[Allocation]:
    inside = [a for a in alive if _in_loop(detail.sites[a.site].op) and not a.temporary]
    turns = Counter(a.site for a in inside)
    return [a for a in inside if turns[a.site] >= TURNS]


def _in_loop(op: str) -> bool:
    return "while" in op.lower() or "TensorList" in op or "/scan" in op


def _severity(recording: Recording, size: int) -> str:
    """Half of all there is: nobody meant that. Less is what a loop costs."""
    return PROBLEM if is_worth(recording, size, 2 * LARGE_PART) else ADVICE


def _loop_line(recording: Recording, detail: Detail, stacked: Sequence[Allocation]) -> Source | None:
    """The call, where the stack outlives it; else the loop around the line that the ops are from."""
    step = step_of(recording, detail)
    if step is not None and step.kind in ("call", "function") and any(a.stop is None for a in stacked):
        return step.source
    lines = Counter(line for a in stacked if (line := detail.sites[a.site].source) is not None)
    if not lines:
        return step.source if step else None
    line = lines.most_common(1)[0][0]
    file = read_code(recording).file(line.file)
    loops = file.loops_around(line.line) if file else []
    inner = [loop for loop in loops if isinstance(loop, ast.For | ast.While)]
    return Source(line.file, inner[-1].lineno) if inner else _goes_round_at(read_code(recording), line) or line


_GO_ROUND = ("scan", "while_loop", "foldl", "foldr", "map_fn")


def _goes_round_at(code: Code, line: Source) -> Source | None:
    """The line that hands a loop the function which a line is in."""
    for at, call in code.calls(*_GO_ROUND):
        if any(runs_in(code, at, given, line) for given in (*call.args, *(k.value for k in call.keywords))):
            return at
    return None


def goes_round(code: Code) -> bool:
    """Whether the script itself writes loops of TensorFlow's."""
    return bool(code.calls(*_GO_ROUND))


def sizes_in(shape: str) -> tuple[str, ...]:
    """The dimensions of a shape, however it is written."""
    return tuple(_NUMBER.findall(shape))


_NUMBER = re.compile(r"\d+")


def _same_each_turn(recording: Recording, detail: Detail, stacked: Sequence[Allocation]) -> Source | None:
    """The line that makes, in each turn, something of a weight's shape of which no turn of its loop changes a part; if
    that is most of the stack."""
    weights = {sizes_in(a.shape) for a in detail.allocations if a.category == "parameters"}
    made: Counter[Source | None] = Counter()
    for a in stacked:
        made[detail.sites[a.site].source if sizes_in(a.shape) in weights else None] += a.chunk_bytes
    source = made.most_common(1)[0][0] if made else None
    file = read_code(recording).file(source.file) if source else None
    loops = file.loops_around(source.line) if file and source else []
    statement = file.statement(source.line) if file and source else None
    return source if loops and statement and unchanged_in(loops[-1], statement) else None


MOST_SLOTS = 4
"""Slots a weight: AdamW with amsgrad and averaged weights has as many, and nothing has more."""


def optimizer_state(recording: Recording) -> Iterator[Finding]:
    """Slots that another optimizer would not have, and what its update makes beside them."""
    detail = fullest_detail(recording)
    if detail is None or device_peak(recording) is None:
        return
    parts = by_category(detail)
    slots, weights = parts["optimizer state"], parts["parameters"]
    optimizers = sum(m.number for m in recording.made if m.kind == "optimizer")
    if slots > MOST_SLOTS * weights and optimizers > 1 and is_worth(recording, slots, NOTABLE):
        lines = Counter[Source | None]()
        for a in detail.at_peak:
            if a.category == "optimizer state":
                lines[detail.sites[a.site].source] += a.chunk_bytes
        source = lines.most_common(1)[0][0]
        yield Finding(
            "optimizer-state", PROBLEM,
            f"{optimizers} optimizers keep {format_size(slots)} of slots, for {format_size(weights)} of weights",
            slots, source, read_code(recording).text(source),
            "one optimizer for weights that several losses share: add the losses up, or apply each gradient with it",
            None, "", slots - 2 * weights,
        )  # fmt: skip
        return
    if (loaded := _loaded_to_infer(recording)) and is_worth(recording, slots, NOTABLE):
        yield Finding(
            "optimizer-state", PROBLEM, f"{format_size(slots)} of optimizer slots came with what was loaded here, and "
            "nothing is trained after", slots, loaded, read_code(recording).text(loaded),
            "`compile=False` loads a model without its optimizer", None, "", slots,
        )  # fmt: skip
        return
    beside = _made_by_update(detail)
    averaged = _averaged_at(recording) if slots > 0.8 * weights else None
    if averaged is not None and is_worth(recording, slots + beside, 2 * NOTABLE):
        yield Finding(
            "optimizer-state", ADVICE, f"{format_size(slots)} of optimizer slots, {format_size(weights)} of them "
            "averages of the weights", slots + beside, averaged, read_code(recording).text(averaged),
            "leave `use_ema` out unless the averages are used: one copy of the weights less", None, "", weights,
        )  # fmt: skip
        return
    if slots > 1.5 * weights and is_worth(recording, slots + beside, LARGE_PART):
        source = next((m.source for m in recording.made if m.kind == "optimizer"), None)
        more = f", and {format_size(beside)} that its update makes beside them" if beside else ""
        yield Finding(
            "optimizer-state", ADVICE,
            f"{format_size(slots)} of optimizer slots for {format_size(weights)} of weights{more}",
            slots + beside, source, read_code(recording).text(source),
            "an optimizer with one slot a weight (RMSprop, Lion, SGD with momentum) has half; plain SGD has none",
            None, "", slots // 2,
        )  # fmt: skip


def _averaged_at(recording: Recording) -> Source | None:
    """The line that has an optimizer keep averages of the weights."""
    code = read_code(recording)
    for file in code.files():
        for call in (node for node in file.nodes() if isinstance(node, ast.Call)):
            if any(keyword.arg == "use_ema" and file.number(keyword.value) for keyword in call.keywords):
                return Source(file.name, call.lineno)
    return None


def _loaded_to_infer(recording: Recording) -> Source | None:
    """The line that loads models with their optimizers, where no step trains after it."""
    trained = max((step.start for step in recording.steps if step.kind in TRAINING_KINDS), default=0.0)
    for line, call in read_code(recording).calls("load_model"):
        bare = any(k.arg == "compile" and getattr(k.value, "value", True) is False for k in call.keywords)
        seen = [sample.time for sample in inside(recording) if sample.source == line]
        if not bare and seen and min(seen) > trained:
            return line
    return None


def _made_by_update(detail: Detail) -> int:
    """What the update has at the peak: Adam makes sparse gradients of a table as large as the table, twice."""
    scopes = _optimizer_scopes(detail)
    return sum(a.chunk_bytes for a in detail.at_peak if a.start and _is_in(scopes, detail, a))


def activations(recording: Recording) -> Iterator[Finding]:
    """Activations that rule the peak: a smaller batch, or recomputation."""
    detail = fullest_detail(recording)
    step = step_of(recording, detail) if detail is not None else None
    if detail is None or step is None or step.kind not in ("fit", "function", "update", "session"):
        return
    size = by_category(detail)["activations"]
    largest = max((a.chunk_bytes for a in detail.at_peak if a.category == "activations"), default=0)
    rules = is_worth(recording, size, LARGE_PART) or (size > detail.peak_bytes / 2 and is_worth(recording, size, PART))
    if rules and largest < ONE_LINE * size:
        yield Finding(
            "activations-rule", ADVICE, f"activations are {size / max(1, detail.peak_bytes):.0%} of the step's peak",
            size, step.source, read_code(recording).text(step.source),
            "half the batch needs half of them; `lowtide fit --budget` recomputes instead, with the same results",
            None, "", size // 2,
        )  # fmt: skip


def unfused_norm(recording: Recording) -> Iterator[Finding]:
    """Batch normalization from single ops: each makes a buffer of the activation's size, where one kernel needs two."""
    detail = fullest_detail(recording)
    if detail is None:
        return
    code = read_code(recording)
    lines: dict[Source | None, list[Allocation]] = {}
    for a in detail.at_peak:
        site = detail.sites[a.site]
        if a.start and _is_norm(site.op, site.layer, code.text(site.source)) and "Fused" not in site.kind:
            lines.setdefault(_norm_line(code, site.source), []).append(a)
    for source, found in lines.items():
        largest = max(a.chunk_bytes for a in found)
        saving = sum(a.chunk_bytes for a in found) - 2 * largest
        if is_worth(recording, saving, NOTABLE):
            by_hand = any(word in code.text(source) for word in _BY_HAND)
            yield Finding(
                "batchnorm-unfused", PROBLEM if by_hand else ADVICE,
                f"batch normalization from single ops has {len(found)} buffers at the peak", saving + 2 * largest,
                source, code.text(source),
                _FUSE if by_hand else _KERAS_NORM, None, "", saving,
            )  # fmt: skip


_FUSE = "tf.compat.v1.nn.fused_batch_norm computes it in one op"
_KERAS_NORM = "Keras computes it from single ops on this version: fewer such layers, or a smaller batch"
_BY_HAND = ("batch_normalization(", "nn.moments", "fused=False", "reduce_variance", "reduce_std")


def _is_norm(op: str, layer: str, text: str) -> bool:
    named = (op + " " + layer).lower()
    return "batchnorm" in named or "batch_norm" in named or "moments/" in named or any(w in text for w in _BY_HAND)


def _norm_line(code: Code, source: Source | None) -> Source | None:
    """The line that normalizes: ops of the moments and of the way back are its own."""
    calls = [line for line, _ in code.calls("batch_normalization", "nn.moments")]
    normalizing = [line for line in calls if "batch_normalization" in code.text(line)] or calls
    return likeliest(code, normalizing) or source


def run_eagerly(recording: Recording) -> Iterator[Finding]:
    """Keras steps that run op by op: nothing is fused, and each activation lives until its Python name goes."""
    code = read_code(recording)
    lines = code.names("run_eagerly", "run_functions_eagerly")
    for detail in recording.details:
        step = step_of(recording, detail)
        if step is None or step.kind not in ("fit", "evaluate", "predict") or not lines:
            continue
        eager = [a for a in detail.at_peak if a.start and detail.sites[a.site].mode == "eager"]
        size = sum(a.chunk_bytes for a in eager)
        kept = size - 2 * max((a.chunk_bytes for a in eager), default=0)
        if is_worth(recording, kept, NOTABLE) and 2 * size > detail.peak_bytes - detail.begin_bytes:
            yield Finding(
                "step-runs-eagerly", PROBLEM if step.kind != "fit" else ADVICE,
                f"{step.kind} runs op by op: {len(eager)} results are alive at its peak", size, lines[-1],
                code.text(lines[-1]), "leave run_eagerly out, but for debugging: a graph frees what is not needed",
                None, "", kept,
            )  # fmt: skip
            return
