"""What is known to cost memory on certain versions, as a table: read by `lowtide doctor` and by the rules of diagnose.

Each row was measured on the versions that it names. For other versions nothing is claimed, and that is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

MEASURED_ON = {"tensorflow": "2.21", "keras": "3.15"}
"""The releases that the table was measured on; a patch release of them counts as the same."""


@dataclass(frozen=True, slots=True)
class Known:
    """`id` is stable. `kind`: "leak" is never given back, "cost" is given back, "myth" is said and not so here."""

    id: str
    kind: str
    title: str
    symptom: str
    remedy: str
    needs: tuple[str, ...] = ("tensorflow",)
    """Packages whose versions decide whether it applies."""
    findings: tuple[str, ...] = ()
    """Rules of diagnose that find it in a run."""
    names: tuple[str, ...] = ()
    """Where no rule is needed to see it: what a script that has it calls or passes by name."""
    bytes_of: str = ""
    """For these: the category of device bytes that it costs, or that it does not lower as was meant."""


KNOWN: tuple[Known, ...] = (
    Known(
        "trained-model-not-freed", "leak",
        "a Keras model trained in graph mode is never freed",
        "Memory grows with each model trained in the process (about 55 MB for a 17 MB model with Adam); del, gc and "
        "clear_session() do not give it back. The optimizer's update is a custom gradient whose closure stays in "
        "TensorFlow's registry of gradients.",
        "Train each model in a process of its own, or reuse one model and reset its weights. run_eagerly=True does not "
        "leak, and is slow.",
        ("tensorflow", "keras"),
        findings=("models-never-freed", "compiled-again"),
    ),
    Known(
        "custom-gradient-per-trace", "leak",
        "each trace through a tf.custom_gradient stays in memory",
        "Graphs and what they capture pile up with every trace; a model with silu does this on predict alone.",
        "Trace once: fixed input shapes or an input_signature, and no new tf.function in a loop.",
        findings=("retrace-by-value", "retrace-by-shape", "function-made-again"),
    ),
    Known(
        "py-function-closures", "leak",
        "closures of from_generator, numpy_function and py_function are never released",
        "Each dataset or function that is rebuilt in a loop keeps what its Python closure captured.",
        "Build them once, outside the loop; keep large arrays out of the closure.",
        findings=("dataset-made-again", "closures-kept"),
    ),
    Known(
        "lookup-tables", "leak",
        "re-created lookup tables and StringLookup layers stay in memory",
        "Memory grows with each table or layer that is made again.",
        "Make them once and reuse them.",
        ("tensorflow", "keras"),
        findings=("layers-made-again",),
    ),
    Known(
        "deleted-variables", "leak",
        "a deleted variable leaves about 35 KB behind",
        "Slow growth in code that makes and drops many variables: kernels made for them stay in a cache.",
        "keras.backend.clear_session() empties that cache; better, reuse variables.",
        findings=("variables-made-again",),
    ),
    Known(
        "baked-constants", "cost",
        "a NumPy array that a tf.function closes over is baked into its graph",
        "About 5 times the array's size is held and 9 times at the peak; each use and each trace adds another copy.",
        "Capture tf.constant(array) instead (1 time its size), or pass it as an argument.",
        findings=("constants-in-graph",),
    ),
    Known(
        "eager-model-call", "cost",
        "calling a Functional or Sequential model eagerly keeps every activation until it returns",
        "model(x) outside a tf.function peaks far higher than predict: 544 MB against 66 MB in one case.",
        "Wrap the call in a tf.function.",
        ("tensorflow", "keras"),
        findings=("called-on-everything",),
    ),
    Known(
        "views-pin", "cost",
        "a slice of dimension 0 and .numpy()[:1] are views that keep the whole buffer",
        "A list of small slices holds as much as the tensors they were cut from.",
        "Copy what is kept: .numpy()[:1].copy().",
        findings=("view-pins-buffer",),
    ),
    Known(
        "data-copied", "cost",
        "an array given to fit or from_tensor_slices is copied into RAM, memory-mapped files too",
        "A 300 MiB memmap costs 313 MiB of RAM in fit; in from_tensor_slices 600 MiB for a moment, 301 MiB for good.",
        "Read it in a keras.utils.PyDataset (3 MiB in the same measurement).",
        ("tensorflow", "keras"),
        findings=("array-given-to-fit", "dataset-copied"),
    ),
    Known(
        "autotune-budget", "cost",
        "tf.data's AUTOTUNE may fill half of the free RAM",
        "Buffers of parallel stages grow over the run, up to a budget taken from the RAM that was free at the start.",
        "Set options.autotune.ram_budget, or fixed buffer sizes.",
        findings=("autotune-buffers",),
    ),
    Known(
        "accumulation-copy", "cost",
        "gradient_accumulation_steps of a Keras optimizer adds one fp32 copy of every weight",
        "Memory rises when accumulation is turned on, and batches are not split by it.",
        "Use a smaller batch, or lowtide fit.",
        ("keras",),
        names=("gradient_accumulation_steps",), bytes_of="parameters",
    ),
    Known(
        "remat-scope", "cost",
        "keras.RematScope does not save memory on TensorFlow",
        "\"full\" and \"larger_than\" raise an error on functional models, \"activations\" saves nothing.",
        "Use lowtide fit, which recomputes on TensorFlow's own graph.",
        ("tensorflow", "keras"),
        names=("RematScope",), bytes_of="activations",
    ),
    Known(
        "model-parallel", "cost",
        "keras.distribution.ModelParallel builds on TensorFlow and shards nothing",
        "Each device holds the whole model.",
        "Expect no saving from it. MirroredStrategy works, and copies the model to each device.",
        ("tensorflow", "keras"),
        names=("ModelParallel",), bytes_of="parameters",
    ),
    Known(
        "retention", "myth",
        "RSS that does not fall is often not a leak",
        "glibc keeps freed blocks: RSS rose 215 MB in one run while the live heap rose 8 MB.",
        "MALLOC_ARENA_MAX=1 with MALLOC_MMAP_THRESHOLD_=65536 and MALLOC_TRIM_THRESHOLD_=65536 makes RSS follow what "
        "is live.",
    ),
    Known(
        "gone", "myth",
        "no leak here: predict in a loop, losses kept in a list, repeated fit of one model, unclosed summary writers",
        "Often named as the cause; measured, they do not grow on these versions.",
        "Look elsewhere first.",
        ("tensorflow", "keras"),
    ),
)  # fmt: skip


def applies(known: Known, versions: Mapping[str, str]) -> bool:
    """Whether it was measured on these very releases."""
    return all(_same_release(versions.get(name, ""), MEASURED_ON[name]) for name in known.needs)


def known_on(versions: Mapping[str, str]) -> tuple[Known, ...]:
    """The rows that hold on these versions."""
    return tuple(known for known in KNOWN if applies(known, versions))


def known_of(finding: str, versions: Mapping[str, str]) -> Known | None:
    """The row that a rule's finding is an instance of, where it holds on these versions."""
    return next((known for known in known_on(versions) if finding in known.findings), None)


def _same_release(version: str, release: str) -> bool:
    return version == release or version.startswith(release + ".")
