"""Functions and graphs: traced again and again, made in a loop, full of constants, loops written out."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from lowtide.diagnose.code import read_code
from lowtide.diagnose.evidence import called_in_loop, is_worth, per_step, rss_at, unexplained
from lowtide.diagnose.origins import is_handed_out, made_for
from lowtide.diagnose.syntax import dotted, last_name
from lowtide.diagnose.types import ADVICE, PROBLEM, Finding
from lowtide.program import Source
from lowtide.record import Constant, Recording, Trace
from lowtide.units import format_size

MANY = 5
"""Traces of one function: a few are for batch sizes and modes, more is a habit."""
NOTABLE = 0.03
LARGE = 1 << 20
UNROLLED = 1500
"""Ops in one trace of the user's own function that make one look for a loop."""
ALIKE = 40
"""So many ops of one type, in one trace, come from a loop."""


def retraced(recording: Recording) -> Iterator[Finding]:
    """One tf.function traced again and again, because its arguments never fit an earlier trace."""
    owners: dict[int, list[Trace]] = {}
    for trace in recording.traces:
        owners.setdefault(trace.owner, []).append(trace)
    for traces in owners.values():
        again = [trace for trace in traces if trace.cause.startswith("argument")]
        if len(again) >= MANY:
            yield _retraced(recording, again)


def _retraced(recording: Recording, again: Sequence[Trace]) -> Finding:
    causes = Counter(_argument(trace.cause) for trace in again)
    (argument, change), _ = causes.most_common(1)[0]
    if causes[argument, _LENGTH] >= MANY:
        change = _LENGTH  # whatever else is new in it
    source = _most(trace.called for trace in again)
    if source is not None and change in (_OBJECT, _KEYS):
        source = made_for(read_code(recording), source, argument) or source
    if change == _SHAPE:
        source = _signature(recording, again[0].defined) or source
    fix = {
        _VALUE: f"pass `{argument}` as a tensor: `tf.constant(...)` or `tf.convert_to_tensor(...)`",
        _OBJECT: f"make `{argument}` once and pass the same object: another one means another trace",
        _KEYS: f"give `{argument}` the same keys each time: names that change belong in its values",
        _LENGTH: f"stack `{argument}` into one tensor (`tf.stack`): a list of another length means another trace",
        _SHAPE: "give the tf.function an input_signature with None where sizes vary, or reduce_retracing=True, or pad",
    }[change]
    title = f"`{again[0].function}` was traced {len(again) + 1} times: argument `{argument}` is {change} each time"
    id_ = "retrace-by-shape" if change == _SHAPE else "retrace-by-value"
    return _of_traces(recording, id_, again, title, fix, source)


def _signature(recording: Recording, defined: Source | None) -> Source | None:
    """Where it is said what shapes may be: a decorator that says something of it, or the call that makes the
    tf.function; None for a bare decorator."""
    file = read_code(recording).file(defined.file) if defined else None
    function = file.function_at(defined.line) if file and defined else None
    if file is None or function is None:
        return None
    for decorator in getattr(function, "decorator_list", ()):
        words = {keyword.arg for keyword in decorator.keywords} if isinstance(decorator, ast.Call) else set()
        if words & {"input_signature", "reduce_retracing"}:
            return Source(file.name, decorator.lineno)
    making = [node for node in file.nodes() if isinstance(node, ast.Call) and _makes(node, function)]
    return Source(file.name, making[0].lineno) if len(making) == 1 else None


def _makes(call: ast.Call, function: ast.AST) -> bool:
    """Whether it is `tf.function(function, ...)`."""
    if dotted(call.func) not in ("tf.function", "tensorflow.function") or not call.args:
        return False
    return call.args[0] is function or last_name(call.args[0]) == getattr(function, "name", None)


_VALUE, _OBJECT, _KEYS, _SHAPE = "a new Python value", "a new object", "a dict with new keys", "a new shape or dtype"
_LENGTH = "a list of another length"
_KEY = re.compile(r"\['([^']*)', ")


def _argument(cause: str) -> tuple[str, str]:
    """(which argument, how it changed)."""
    first = cause.removeprefix("argument ").partition(";")[0]
    name, _, change = first.partition(":")
    if "Python object" in change:
        return name, _OBJECT
    if any(sign in change for sign in ("became Python", "Literal")):
        return name, _VALUE
    before, _, after = change.strip().partition(" became ")
    if before.startswith(("List[", "Tuple[")) and (_goes_on(before, after) or _goes_on(after, before)):
        return name, _LENGTH
    return name, _KEYS if _KEY.findall(before) != _KEY.findall(after) else _SHAPE


def _goes_on(short: str, long: str) -> bool:
    """Whether one list is the beginning of another, as far as that is told."""
    return long.startswith(f"{short.removesuffix(']')},")


def _of_traces(
    recording: Recording, id_: str, traces: Sequence[Trace], title: str, fix: str, source: Source | None, least: int = 0
) -> Finding:
    size = max(_held(recording, traces), least)
    severity = PROBLEM if is_worth(recording, size, NOTABLE) else ADVICE
    return Finding(
        id_, severity, title, size, source, read_code(recording).text(source), fix, per_step(recording, size), "", size
    )  # fmt: skip


def _held(recording: Recording, traces: Sequence[Trace]) -> int:
    """By how much RSS rose from the first of these traces to the last; their graphs' own size at least."""
    sizes = [trace.graph_bytes for trace in traces]
    graphs = max(sizes) if traces[0].function == SESSION else sum(sizes)
    before, after = rss_at(recording, traces[0].time), rss_at(recording, traces[-1].time)
    rise = after - before if before is not None and after is not None else 0
    return max(graphs, rise)


def _most(lines: Iterable[Source | None]) -> Source | None:
    found = Counter(line for line in lines if line is not None)
    return found.most_common(1)[0][0] if found else None


SESSION = "Session.run"
"""What the recorder calls a v1 graph that a session saw grow."""


def graph_grows(recording: Recording) -> Iterator[Finding]:
    """Ops are added to a v1 graph between one `Session.run` and the next."""
    grown = [t for t in recording.traces if t.function == SESSION and t.cause.startswith("the graph grew")]
    if len(grown) >= MANY:
        source = _most(trace.called for trace in grown)
        title = f"the graph grew {len(grown)} times between runs of the session, to {grown[-1].nodes:,} ops"
        fix = "build every op once, before the loop; `graph.finalize()` makes the line that adds one fail"
        # what a session makes of the graph for each run has no size of its own
        yield _of_traces(recording, "graph-grows", grown, title, fix, source, unexplained(recording))


def made_again(recording: Recording) -> Iterator[Finding]:
    """A new tf.function each time, so that nothing is ever traced once only."""
    same: dict[tuple[str, Source | None], list[Trace]] = {}
    for trace in recording.traces:
        if not trace.function.startswith("Dataset_"):
            same.setdefault((trace.function, trace.defined), []).append(trace)
    code = read_code(recording)
    for (function, defined), traces in same.items():
        owners = {trace.owner for trace in traces}
        if defined is None or len(owners) < MANY or len(traces) > 2 * len(owners):
            continue
        making = [made for made in recording.made if made.kind == "function" and made.number >= len(owners) // 2]
        lines = [made.source for made in making if made.source.file == defined.file and code.ran(made.source)]
        near = [line for line in lines if line == defined or code.in_loop(line)]
        own = near and not is_handed_out(code, near[0])
        making_line = near[0] if own else called_in_loop(recording, near[0]) if near else None
        source = making_line or _most(trace.called for trace in traces) or defined
        title = f"{len(owners)} tf.functions were made of `{function}`, and each was traced"
        fix = "make the tf.function once, outside the loop and outside what is called in it"
        if _is_method(recording, defined):
            fix = "each object gets a trace of its own: decorate a plain function, and pass what changes as tensors"
        yield _of_traces(recording, "function-made-again", traces, title, fix, source)


def _is_method(recording: Recording, defined: Source) -> bool:
    file = read_code(recording).file(defined.file)
    function = file.function_at(defined.line) if file else None
    arguments = getattr(function, "args", None)
    return bool(arguments and arguments.args and arguments.args[0].arg == "self")


def constants(recording: Recording) -> Iterator[Finding]:
    """NumPy arrays that a traced function closes over: baked into its graph, once a use and once a trace."""
    lines: dict[Source | None, list[tuple[Trace, Constant]]] = {}
    sessions = [trace for trace in recording.traces if trace.function == SESSION]
    for trace in [*(t for t in recording.traces if t.function != SESSION), *sessions[-1:]]:  # the last has all of them
        for constant in trace.constants:
            if constant.bytes >= LARGE:
                lines.setdefault(constant.source or trace.called, []).append((trace, constant))
    for source, found in lines.items():
        traces = list({id(trace): trace for trace, _ in found}.values())
        listed = sum(constant.bytes for _, constant in found)
        baked = max(listed, *(trace.constant_bytes for trace in traces)) if len(lines) == 1 else listed
        size = max(baked, _built(recording, traces))
        if is_worth(recording, size, NOTABLE):
            one = found[0][1]
            copies = round(baked / one.bytes)
            yield Finding(
                "constants-in-graph", PROBLEM,
                f"{format_size(baked)} of constants are baked into graphs: {copies} of {one.dtype} {one.shape}",
                size, source, read_code(recording).text(source),
                "capture a `tf.constant` or `tf.Variable` made outside the function, or pass the array as an argument",
                None, "", size - one.bytes or None,
            )  # fmt: skip


def _built(recording: Recording, traces: Sequence[Trace]) -> int:
    """By how much RSS rose while these were built and first run."""
    first, last = min(trace.time for trace in traces), max(trace.time for trace in traces)
    around = [step for step in recording.steps if step.start <= last and step.stop >= first]
    begun, ended = min([first, *(s.start for s in around)]), max([last, *(s.stop for s in around)])
    before = rss_at(recording, begun)
    during = [s.rss_bytes for s in recording.samples if s.rss_bytes is not None and begun <= s.time <= ended]
    return max(during) - before if during and before is not None else 0


def unrolled(recording: Recording) -> Iterator[Finding]:
    """A Python loop in a traced function, or in a layer, written out turn by turn."""
    yield from _unrolled_layer(recording)
    for trace in recording.traces:
        if trace.nodes < UNROLLED or trace.defined is None or max(trace.kinds.values(), default=0) < ALIKE:
            continue
        loop = _loop_in(recording, trace.defined)
        size = max(trace.graph_bytes, _built(recording, [trace]))
        if loop is not None:
            yield Finding(
                "python-loop-unrolled", PROBLEM if is_worth(recording, size, NOTABLE) else ADVICE,
                f"a Python loop in `{trace.function}` was written out: {trace.nodes:,} ops in its graph",
                size, loop, read_code(recording).text(loop),
                "loop over `tf.range` or use `tf.while_loop`: its body is traced once", None, "", size,
            )  # fmt: skip


def _unrolled_layer(recording: Recording) -> Iterator[Finding]:
    """A layer that is thousands of ops in a step: a recurrence written out turn by turn."""
    traces = [trace for trace in recording.traces if trace.nodes >= UNROLLED]
    for detail in recording.details:
        layers = Counter((site.layer, site.source) for site in detail.sites if site.layer and site.source)
        (layer, source), ops = layers.most_common(1)[0] if layers else (("", None), 0)
        if ops >= UNROLLED and traces and 2 * ops > len(detail.sites):
            size = max(sum(trace.graph_bytes for trace in traces), _built(recording, traces))
            yield Finding(
                "python-loop-unrolled", PROBLEM if is_worth(recording, size, NOTABLE) else ADVICE,
                f"the layer `{layer.partition('/')[0]}` is {ops:,} ops of a step, written out turn by turn",
                size, source, read_code(recording).text(source),
                "let it loop: `unroll=False`, which is Keras's default, or `tf.while_loop`: its body is there once",
                None, "", size,
            )  # fmt: skip
            return


def _loop_in(recording: Recording, defined: Source) -> Source | None:
    """The loop over Python things in a function, the innermost of several."""
    code = read_code(recording)
    file = code.file(defined.file)
    function = file.function_at(defined.line) if file else None
    if file is None or function is None:
        return None
    loops = [
        node for node in ast.walk(function)
        if isinstance(node, ast.For | ast.While | ast.comprehension | ast.ListComp)
        and file.is_live(getattr(node, "lineno", defined.line)) and isinstance(node, ast.For | ast.While)
        and not (isinstance(node, ast.For) and "tf." in dotted(node.iter))
    ]  # fmt: skip
    ranked = [n for n in loops if isinstance(n, ast.For) and dotted(n.iter) in ("range", "enumerate")] or loops
    return Source(defined.file, ranked[-1].lineno) if ranked else None
