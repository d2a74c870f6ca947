"""The table of rules, and how their findings become one list.

Each rule looks at the recording by itself. Where two name the same bytes, the one made for the case stands and the
general one gives way; what one rule says of one line several times is one finding. Problems come before advice, more
bytes before fewer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from lowtide.diagnose import (
    aftermath,
    at_once,
    data,
    functions,
    growth,
    leaks,
    made,
    models,
    peak,
    recorded,
    stages,
    step,
    tapes,
    watchers,
)
from lowtide.diagnose.code import read_code
from lowtide.diagnose.syntax import Span
from lowtide.diagnose.types import PROBLEM, Finding, Rule
from lowtide.known import known_of
from lowtide.program import Source
from lowtide.record import Recording

RULES: tuple[Rule, ...] = (
    Rule("out-of-memory", "oom", "why memory ran out, and what would have saved the run", aftermath.out_of_memory),
    Rule("tensors-kept", "leak", "tensors of one form pile up: who keeps them, on which line", leaks.kept, True),
    Rule("arrays-kept", "leak", "the same of NumPy arrays", leaks.kept, True),
    Rule("variables-kept", "leak", "the same of variables", leaks.kept, True),
    Rule("view-pins-buffer", "leak", "a small slice or view keeps a large buffer alive", leaks.kept),
    Rule("device-growth", "leak", "device bytes rise from step to step: whose buffers survive", growth.on_device, True),
    Rule("host-growth", "leak", "the process grows from step to step, outside the device", growth.on_host, True),
    Rule("kernels-per-shape", "device", "kernels that oneDNN keeps for each new shape: no leak", growth.on_host),
    Rule("malloc-retention", "device", "RSS that malloc keeps: no leak", growth.retention),
    Rule("tapes-kept", "leak", "gradient tapes stay alive with what they recorded", tapes.kept),
    Rule("tape-spans-steps", "leak", "one tape around many steps", tapes.spans_steps),
    Rule("gradient-inside-tape", "tape", "gradient called while its tape records", tapes.gradient_inside),
    Rule("tape-records-unused", "tape", "activations kept for variables that get no gradient", recorded.records_unused),
    Rule("retrace-by-value", "retrace", "a new Python value means a new graph", functions.retraced),
    Rule("retrace-by-shape", "retrace", "a new shape or dtype means a new graph", functions.retraced),
    Rule("function-made-again", "retrace", "a new tf.function each time: in a loop, or one for each object",
         functions.made_again),
    Rule("graph-grows", "retrace", "a v1 graph that grows in a session loop", functions.graph_grows),
    Rule("constants-in-graph", "graph", "NumPy arrays baked into graphs", functions.constants),
    Rule("python-loop-unrolled", "graph", "a Python loop written out in a graph", functions.unrolled),
    Rule("models-kept", "leak", "models held by a name", models.models_kept),
    Rule("models-never-freed", "leak", "models that TensorFlow holds on to after training", models.models_kept),
    Rule("optimizer-made-again", "leak", "a new optimizer in each step", made.slots_made_again),
    Rule("compiled-again", "leak", "one model compiled again and again", made.compiled_again),
    Rule("iterators-kept", "leak", "iterators of tf.data that stay alive with their buffers", made.iterators_kept),
    Rule("sessions-left-open", "leak", "v1 sessions made in a loop and not closed", made.sessions_open),
    Rule("layers-made-again", "leak", "layers with lookup tables made in a loop: never freed", made.made_in_loop),
    Rule("dataset-made-again", "leak", "datasets made in a loop, whose closures are never freed", made.made_in_loop),
    Rule("variables-made-again", "leak", "variables made in a loop", made.made_in_loop),
    Rule("closures-kept", "leak", "py_function and numpy_function closures made in a loop", made.made_in_loop),
    Rule("profiler-left-on", "leak", "a profiler that was never stopped", watchers.profiler_on),
    Rule("debugger-left-on", "leak", "the debugger's dump of whole tensors", watchers.debug_dump),
    Rule("summaries-waiting", "leak", "summaries that wait in a writer's queue", watchers.summaries),
    Rule("float64-data", "data", "float64 where float32 was meant", data.float64),
    Rule("dataset-in-constant", "data", "a whole dataset in a tf.constant", data.copied),
    Rule("dataset-copied", "data", "an array or mapped file copied by from_tensor_slices", data.copied),
    Rule("array-given-to-fit", "data", "what fit, evaluate and predict copy of a large array", data.given_to_fit),
    Rule("array-many-times", "data", "an array that has another several times over", data.many_times),
    Rule("mostly-padding", "data", "batches padded up to one row that is far longer", data.padded),
    Rule("predict-collects", "data", "predict puts large outputs together", data.collected),
    Rule("shuffle-buffer", "data", "bytes in a shuffle buffer", stages.buffers),
    Rule("cached-in-memory", "data", "bytes that cache() keeps", stages.buffers),
    Rule("prefetch-buffer", "data", "bytes that prefetch has waiting", stages.buffers),
    Rule("interleave-buffers", "data", "bytes in the sources of an interleave", stages.buffers),
    Rule("parallel-map-buffer", "data", "bytes that a parallel map has ready", stages.buffers),
    Rule("autotune-buffers", "data", "bytes in stages whose size tf.data tunes, up to its RAM budget", stages.buffers),
    Rule("grouped-in-memory", "data", "rows that wait until a window or bucket is full", stages.grouped),
    Rule("queued-batches", "data", "batches that wait in the queue of a PyDataset", data.queued),
    Rule("dense-gradient", "step", "IndexedSlices made dense", step.dense_gradient),
    Rule("loop-keeps-every-turn", "step", "while_loop stacks", step.loop_stack),
    Rule("jacobian-all-at-once", "step", "a Jacobian by pfor", at_once.jacobian),
    Rule("vectorized-at-once", "step", "vectorized_map over many elements", at_once.vectorized),
    Rule("copies-written-out", "step", "copies of one tensor that broadcasting would not make", at_once.tiled),
    Rule("called-on-everything", "step", "a model called on the whole dataset at once", at_once.called_on_everything),
    Rule("evaluated-at-once", "step", "evaluation or validation on far more rows than training",
         at_once.evaluated_at_once),
    Rule("step-runs-eagerly", "step", "Keras steps that run op by op", step.run_eagerly),
    Rule("batchnorm-unfused", "step", "batch normalization from single ops", step.unfused_norm),
    Rule("optimizer-state", "step", "slots that another optimizer would not have", step.optimizer_state),
    Rule("peak-by-line", "step", "the line with most of the device's peak", peak.by_line, True),
    Rule("host-peak", "step", "the line where RSS is far higher for a moment", peak.on_host, True),
    Rule("held-by-name", "step", "the one array or tensor of a name that has most of the peak", peak.held, True),
    Rule("reserved-unused", "device", "a GPU's memory that is reserved and never used", peak.reserved),
    Rule("fragmentation", "device", "a request refused though enough was free, in pieces", peak.fragmented),
    Rule("swapped-out", "device", "the process was swapped out", peak.swapped),
    Rule("known-bug", "device", "what this version is known to cost, where the script uses it", peak.known_bugs),
    Rule("activations-rule", "step", "activations at the peak: batch or recomputation", step.activations),
)  # fmt: skip
"""In the order of the documentation. Several ids may share a function."""

BY_ID = {rule.id: rule for rule in RULES}
CATCH_ALL = ("device-growth", "host-growth")
"""What is left when nothing else explains it: these yield to any other leak that accounts for a third of it."""


BUFFERS = (
    "shuffle-buffer", "cached-in-memory", "prefetch-buffer", "interleave-buffers", "parallel-map-buffer",
    "autotune-buffers", "grouped-in-memory", "queued-batches",
)  # fmt: skip
"""They grow until they are full: that is no leak."""


def diagnose(recording: Recording) -> list[Finding]:
    """What wastes memory in this run, the most important first."""
    found = [finding for check in dict.fromkeys(rule.check for rule in RULES) for finding in check(recording)]
    kept = _without_repeats(recording, _joined(found))
    return sorted((_as_known(finding, recording) for finding in aftermath.explained(kept, recording)), key=_importance)


def _as_known(finding: Finding, recording: Recording) -> Finding:
    """With the version's own bug named, where it is one: the table that `lowtide doctor` reads."""
    known = known_of(finding.id, recording.run.versions)
    if known is None:
        return finding
    versions = " and ".join(f"{name} {recording.run.versions[name]}" for name in known.needs)
    return replace(finding, fix=f"{finding.fix}. Known on {versions}: {known.title}")


LITTLE_SAID = {"peak-by-line": 1, "host-peak": 1, "held-by-name": 2, "malloc-retention": 3, "activations-rule": 3}
"""They say where, not why: other advice comes before them. What a name holds may be wanted, unlike what comes and goes.
That activations rule is true of every training, and what malloc keeps is nobody's fault."""


def _importance(finding: Finding) -> tuple[bool, bool, int, int, str, int]:
    line, late = finding.source.line if finding.source else 0, LITTLE_SAID.get(finding.id, 0)
    return finding.id != aftermath.ID, finding.severity != PROBLEM, late, -finding.bytes, finding.id, line


def _joined(found: Iterable[Finding]) -> list[Finding]:
    """One finding for a rule, a severity and a line: the largest speaks, and the bytes are of all."""
    groups: dict[tuple[str, str, Source | None], list[Finding]] = {}
    for finding in found:
        groups.setdefault((finding.id, finding.severity, finding.source), []).append(finding)
    joined = []
    for group in groups.values():
        first = max(group, key=lambda f: f.bytes)
        if len(group) > 1:
            first = replace(
                first,
                title=f"{first.title}; with others of other forms on this line",
                bytes=sum(f.bytes for f in group),
                bytes_per_step=_sum(f.bytes_per_step for f in group),
                saving_bytes=_sum(f.saving_bytes for f in group),
            )
        joined.append(first)
    return joined


def _sum(sizes: Iterable[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def _without_repeats(recording: Recording, found: Sequence[Finding]) -> list[Finding]:
    """General findings go where a special one names the same statement, or explains bytes without a holder or a line.

    General advice goes where there is anything else: it is for runs that nothing else explains.
    """
    code = read_code(recording)
    special = [f for f in found if not BY_ID[f.id].general and f.severity == PROBLEM]
    named = [f for f in found if f.severity == PROBLEM and BY_ID[f.id].family in ("leak", "retrace") and f.source]
    named += [f for f in found if f.id in BUFFERS and f.source]
    kept = []
    for finding in found:
        if BY_ID[finding.id].general:
            same = any(_same_statement(code.span(finding.source), other.source) for other in special)
            others = [f for f in named if f.id not in CATCH_ALL and (finding.id in CATCH_ALL or f in special)]
            vague = not finding.holder or finding.source is None
            nobodys = vague and any(3 * other.bytes >= finding.bytes for other in others)
            said = finding.severity != PROBLEM and any(_says_why(other) for other in found)
            if same or nobodys or said:
                continue
        kept.append(finding)
    return kept


def _says_why(finding: Finding) -> bool:
    return not BY_ID[finding.id].general and finding.id not in ("malloc-retention", "activations-rule")


def _same_statement(span: tuple[str, Span] | None, other: Source | None) -> bool:
    return span is not None and other is not None and other.file == span[0] and other.line in span[1]
