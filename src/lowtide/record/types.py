"""What a real run did, as data: a Recording and its parts. Nothing here knows of TensorFlow, files or terminals.

Times are seconds since the run began. Sizes are bytes. None means "not known here", never zero. Device bytes are chunk
bytes, the level a limit bites on, unless a name says `requested`. Intervals are half-open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from lowtide.program import Source

CATEGORIES = (
    "parameters", "optimizer state", "gradients", "activations", "temporaries", "inputs", "constants", "other",
)  # fmt: skip
"""What device bytes are for. `other`: tensors that the script holds and no step was
given, and what no op, variable, tensor or graph accounts for."""

HOST_PARTS = (
    "device in use", "device reserve", "python", "tf.data", "graphs", "libraries", "malloc free", "rest",
)  # fmt: skip
"""What RSS is made of, in this order. On a GPU the first two are elsewhere and zero here.

device in use, device reserve: tensors on a CPU's allocator, those of tf.data left out; its regions that hold none.
python: Python objects and NumPy arrays, where a tracer counts them; else they are in `rest`.
tf.data: elements that its stages have buffered; on a CPU these are on the device's allocator too.
graphs: traced functions and v1 graphs. libraries: pages of files, mostly code.
malloc free: freed blocks that glibc keeps. rest: what is left of RSS.
"""

INSIDE, OUTSIDE = "inside", "outside"
"""Who took a sample: the watched process itself, or the parent that goes on when the child is gone."""


class Sample(NamedTuple):
    """The whole run, cheaply: how things stood at one moment."""

    time: float
    by: str
    step: int | None = None
    """Number of the step then running or last finished: an index into `Recording.steps`."""
    device_bytes: int | None = None
    device_peak_bytes: int | None = None
    """The highest `device_bytes` since the sample before, from the allocator's own count."""
    reserved_bytes: int | None = None
    """What the allocator took from the system: in use or not."""
    rss_bytes: int | None = None
    available_bytes: int | None = None
    swap_bytes: int | None = None
    """Of this process, not of the machine."""
    cgroup_bytes: int | None = None
    heap_bytes: int | None = None
    """Live blocks of malloc."""
    heap_free_bytes: int | None = None
    """Freed blocks that malloc keeps: RSS that is no leak."""
    python_bytes: int | None = None
    data_bytes: int | None = None
    """Buffered in all stages of all tf.data iterators; `Recording.stages` says which."""
    eager_tensors: int | None = None
    eager_bytes: int | None = None
    tapes: int | None = None
    traces: int | None = None
    """Traced graphs so far."""
    graph_bytes: int | None = None
    """Of the graphs that are alive, constants included."""
    source: Source | None = None
    """The user's line that the main thread was on."""


class Step(NamedTuple):
    """One call of what the run repeats. `views.main_steps` picks the kind that counts as the run's own.

    `kind`: "fit" (Keras), "function" (a tf.function that trains), "session" (v1), "update" (an eager optimizer),
    "gradient" (an eager tape), then what does not train: "evaluate", "predict", "call" (a tf.function or a model),
    "run" (a Session), "next" (an element of a tf.data iterator), "stretch" (of eager code that is none of these, for a
    moment). Ranked in this order: `STEP_KINDS`.
    """

    kind: str
    name: str
    source: Source | None
    """The user's line that made the call."""
    start: float
    stop: float
    device_bytes: int | None
    """In use when it ended."""
    device_peak_bytes: int | None
    rss_bytes: int | None
    detailed: bool = False
    repeats: int = 1
    """More than 1 where one call ran several steps (`steps_per_execution`), or quick ones were looked at together."""


STEP_KINDS = (
    "fit", "function", "session", "update", "gradient", "evaluate", "predict", "call", "run", "next", "stretch",
)  # fmt: skip
TRAINING_KINDS = frozenset(STEP_KINDS[:5])


class Site(NamedTuple):
    """Who allocates: an op, as far as a reader wants to know it. `mode` is "eager" or "graph"."""

    op: str
    kind: str
    layer: str
    source: Source | None
    function: str
    """Where the line is: the Python function's name, or the tf.function's when the line is not known."""
    mode: str


class Allocation(NamedTuple):
    """One buffer of a detailed step, alive in [start, stop), counted in allocations and frees.

    `start` is 0 for what was there before the step; `stop` is None for what outlived it. `site` is an index into
    `Detail.sites`. `shape` and `dtype` are empty where TensorFlow does not say.
    """

    site: int
    category: str
    requested_bytes: int
    chunk_bytes: int
    start: int
    stop: int | None
    temporary: bool = False
    """Scratch of a kernel, freed when the op ends."""
    shape: str = ""
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class Detail:
    """A step recorded in full: every allocation and free, and what was there before.

    The chunk bytes of what is alive at `peak_at` sum to `peak_bytes`, which is what the allocator itself said.
    `times[i]` is when event i happened; event 0 is the beginning.
    """

    step: int
    reason: str
    """Why: "first call", "after warm-up", "new high" and others, see `lowtide.tf.choice`."""
    start: float
    stop: float
    sites: tuple[Site, ...]
    allocations: tuple[Allocation, ...]
    times: tuple[float, ...]
    begin_bytes: int
    end_bytes: int
    peak_bytes: int
    peak_requested_bytes: int
    peak_at: int
    peak_site: int | None
    reserved_bytes: int | None = None
    largest_free_bytes: int | None = None
    """The largest piece that was free when the step began, of all that is reserved and unused."""

    def alive_at(self, moment: int) -> list[Allocation]:
        return [a for a in self.allocations if a.start <= moment and (a.stop is None or moment < a.stop)]

    @property
    def at_peak(self) -> list[Allocation]:
        return self.alive_at(self.peak_at)


class Constant(NamedTuple):
    """A constant of a graph."""

    op: str
    bytes: int
    shape: str
    dtype: str
    source: Source | None


class Trace(NamedTuple):
    """A graph that was built: a tf.function traced, or a v1 graph that a session saw grow."""

    time: float
    step: int | None
    function: str
    defined: Source | None
    """The line of the Python function; two functions from one line are one function made twice."""
    called: Source | None
    owner: int
    """Which tf.function object this is, counted from 0: a new one each time means that each is thrown away."""
    cause: str
    """"first call", or what made the earlier traces not fit: "argument epoch: 3 (int) is a new Python value"."""
    seconds: float
    nodes: int
    graph_bytes: int
    constant_bytes: int
    constants: tuple[Constant, ...]
    """The largest, at most 20."""
    rss_bytes: int | None
    """By how much RSS grew while it was built: construction memory, apart from execution."""
    kinds: Mapping[str, int] = {}
    """How many ops of each type, library functions included."""


class Stage(NamedTuple):
    """A stage of a tf.data pipeline at one moment."""

    time: float
    step: int | None
    pipeline: int
    name: str
    """As TensorFlow names it: "Shuffle", "ParallelMapV2", "Prefetch"."""
    source: Source | None
    buffered_bytes: int
    buffered_elements: int
    parameters: Mapping[str, float] = {}
    """`buffer_size`, `parallelism`, as tuned at that moment."""


class HostSplit(NamedTuple):
    """What RSS was made of at one moment. The parts are `HOST_PARTS` and sum to `rss_bytes`."""

    time: float
    step: int | None
    rss_bytes: int
    parts: Mapping[str, int]


class HostLine(NamedTuple):
    """Bytes that code on one line had allocated and not freed, at one moment.

    `kind`: "python" or "numpy" by tracemalloc's count; "python" or "malloc" (any other of the process) by memray's,
    which tells only of the moment when the process had most.
    """

    time: float
    step: int | None
    source: Source
    kind: str
    bytes: int
    blocks: int


UNSEEN = "held by TensorFlow"
"""The `op` of a buffer that no op, tensor or variable is known to have."""
CYCLE = "a reference cycle"
DEFAULT = "default argument of"
BOUNDED = "full at"
EACH_IN = "each in"
"""In the words of a `holder` that only holds itself, one that all calls of a function share, one that has an end, and
one whose parts say themselves which line made them: functions, records of a log."""


class Held(NamedTuple):
    """Live things of one kind, from one line, held by one holder, at one moment: a row of a census.

    `kind`: "tensor" (eager), "variable", "array" (NumPy), "tape", "graph" (FuncGraph or v1), "function", "model",
    "optimizer", "dataset", "iterator". `made` is the line that made them, where it was seen. `holder` is the chain that
    keeps them, from a name the user knows: "list outputs (global of train.py)"; "" when only TensorFlow holds them.
    """

    time: float
    step: int | None
    kind: str
    made: Source | None
    holder: str
    held_at: Source | None
    """A line that put them there (an append, an assignment), where the code shows one."""
    objects: int
    bytes: int
    """Of their buffers; a view counts the whole buffer that it pins."""
    viewed_bytes: int
    """What the views themselves show; less than `bytes` when a small view pins a large buffer."""
    example: str
    """Such as "float32 (256, 4000)"."""


class Tape(NamedTuple):
    """A tf.GradientTape that the run made: one row a line, not one a tape."""

    source: Source | None
    persistent: bool
    watches_variables: bool
    made: int
    """How many."""
    alive: int
    """How many were still alive when last looked at."""
    most_alive: int
    longest_seconds: float
    """The longest time one recorded."""
    most_steps: int
    """The most steps that began and ended while one recorded."""
    gradients: int
    """How often `gradient` or `jacobian` was called."""
    gradients_inside: int
    """How often while the tape was still recording."""
    watched: int = 0
    """The most variables that one watched."""
    used: int = 0
    """The most things that gradients were asked for at once."""


class Data(NamedTuple):
    """A large thing given to TensorFlow: `from_tensor_slices`, `tf.constant`, `fit(x)`, `predict` and what it returned.

    `what` is that call. `mapped`: the array is a file mapped into memory. Batches that were padded are here too
    (`padded_batch`, `to_tensor`), with what of them is no padding.
    """

    time: float
    step: int | None
    what: str
    source: Source | None
    bytes: int
    dtype: str
    shape: str
    mapped: bool = False
    filled_bytes: int | None = None


class Made(NamedTuple):
    """How many things of one kind a line of the user's code has made over the run, dead ones included.

    `kind` as in `Held`, and "layer", "profiler", "session". `name` is their class.
    """

    kind: str
    name: str
    source: Source
    number: int


class Refusal(NamedTuple):
    """The allocation that failed: what was asked for, and by whom."""

    requested_bytes: int | None
    shape: str
    dtype: str
    op: str
    device: str
    source: Source | None
    time: float | None = None
    """When, where somebody was there to see: a script may catch the error and go on."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the run ended. `how`: "done", "exit" (sys.exit with a code), "exception", "signal", "unknown" (none saw)."""

    how: str
    seconds: float
    exit_code: int | None = None
    signal: str = ""
    exception: str = ""
    message: str = ""
    source: Source | None = None
    """The user's innermost line of the traceback."""
    refusal: Refusal | None = None
    out_of_memory: bool = False
    """By the exception, the kernel's word or the signs left behind (`why`)."""
    why: str = ""


class Device(NamedTuple):
    name: str
    allocator: str
    """"bfc", "cuda_malloc_async", "cpu" (uncounted)."""
    limit_bytes: int | None


@dataclass(frozen=True, slots=True)
class Machine:
    cores: int
    memory_bytes: int
    swap_bytes: int
    cgroup_limit_bytes: int | None
    devices: tuple[Device, ...] = ()


@dataclass(frozen=True, slots=True)
class Run:
    """What was run, where, with what."""

    script: str
    arguments: tuple[str, ...]
    folder: str
    """Working directory: relative names are seen from here."""
    began: float
    """Seconds since 1970."""
    machine: Machine
    versions: Mapping[str, str]
    host_tracer: str = "off"
    """"tracemalloc", "memray", "memray-native" (with the stacks of C code) or "off"."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that change TensorFlow's or glibc's use of memory, where set."""


@dataclass(frozen=True, slots=True)
class Recording:
    """What a real run did. `lowtide.record.store` reads and writes it; `lowtide.record.views` asks it questions."""

    run: Run
    outcome: Outcome
    samples: tuple[Sample, ...] = ()
    steps: tuple[Step, ...] = ()
    details: tuple[Detail, ...] = ()
    traces: tuple[Trace, ...] = ()
    stages: tuple[Stage, ...] = ()
    splits: tuple[HostSplit, ...] = ()
    lines: tuple[HostLine, ...] = ()
    census: tuple[Held, ...] = ()
    tapes: tuple[Tape, ...] = ()
    data: tuple[Data, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    """The text of the user's files that other parts point into, as it was when it ran."""
    made: tuple[Made, ...] = ()
    switches: Mapping[str, Mapping[str, bool | int | float | str | None]] = field(default_factory=dict)
    """By file: the plain values of its globals when last looked at. They tell which branch of an `if` ran."""
    notes: tuple[str, ...] = ()
    """What could not be recorded, in words."""
