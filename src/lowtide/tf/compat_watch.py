"""Private TensorFlow and Keras names that watching a run leans on: one function a fact, each with a test.

As `lowtide.tf.compat`, for `lowtide run`; the tests are in `tests/tf/test_compat_watch.py`.
"""

from __future__ import annotations

import ctypes
import platform
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf
from keras.src.backend.tensorflow import core, trainer
from tensorflow.core.function.trace_type import default_types
from tensorflow.core.protobuf import bfc_memory_map_pb2
from tensorflow.python.data.ops import dataset_ops, iterator_ops
from tensorflow.python.eager import backprop, cancellation, context, execute
from tensorflow.python.eager.polymorphic_function import tracing_compilation
from tensorflow.python.framework import func_graph as func_graph_module
from tensorflow.python.framework import importer, op_callbacks, ops
from tensorflow.python.ops import control_flow_v2_func_graphs as body_graphs
from tensorflow.python.ops import resource_variable_ops
from tensorflow.python.profiler.internal import _pywrap_profiler
from tensorflow.python.training import optimizer as v1_optimizer
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from lowtide.tf import compat
from lowtide.tf.counting import USE_BFC, variable

_GET_STATS = "_ZN3tsl12BFCAllocator8GetStatsEv"
_CLEAR_STATS = "_ZN3tsl12BFCAllocator10ClearStatsEv"
_RECORD_MAP = "_ZN3tsl12BFCAllocator15RecordMemoryMapEv"
_MAP_SIZE = "_ZNK10tensorflow10MemoryDump12ByteSizeLongEv"
_MAP_TO_ARRAY = "_ZNK6google8protobuf11MessageLite16SerializeToArrayEPvi"
_MAP_END = "_ZN10tensorflow10MemoryDumpD1Ev"
_IN_USE, _PEAK, _RESERVED = 1, 2, 11
"""Where these stand among the 8-byte words of tsl::AllocatorStats."""


class Stats(NamedTuple):
    """Chunk bytes in use, the most since the count was last cleared, and taken from the system."""

    in_use: int
    peak: int
    reserved: int | None


class Chunk(NamedTuple):
    address: int
    size: int
    requested: int
    in_use: bool


class CpuAllocator(NamedTuple):
    """The CPU's BFC allocator, each call under the allocator's own lock: any thread may ask at any time."""

    stats: Callable[[], Stats]
    clear: Callable[[], None]
    chunks: Callable[[], list[Chunk]]


def cpu_allocator() -> CpuAllocator | None:
    """None when the CPU is not on BFC, or its functions cannot be called from here.

    `GetStats` and `RecordMemoryMap` return structures: on x86-64 the caller passes the place as a first argument.
    """
    if variable(USE_BFC) != "1" or platform.machine() != "x86_64":
        return None
    pointer = ctypes.c_void_p
    try:
        library, allocator = compat._cpu_allocator()
        # Both are read at every step, and take a microsecond: the interpreter's lock is kept meanwhile.
        get = ctypes.PYFUNCTYPE(pointer, pointer, pointer)((_GET_STATS, library))
        clear = ctypes.PYFUNCTYPE(ctypes.c_bool, pointer)((_CLEAR_STATS, library))
        record = ctypes.CFUNCTYPE(pointer, pointer, pointer)((_RECORD_MAP, library))
        size_of = ctypes.CFUNCTYPE(ctypes.c_size_t, pointer)((_MAP_SIZE, library))
        to_array = ctypes.CFUNCTYPE(ctypes.c_bool, pointer, pointer, ctypes.c_int)((_MAP_TO_ARRAY, library))
        end = ctypes.CFUNCTYPE(None, pointer)((_MAP_END, library))
    except (AttributeError, OSError, StopIteration):
        return None

    words_of_stats = ctypes.c_int64 * 32

    def stats() -> Stats:
        words = words_of_stats()
        get(ctypes.addressof(words), allocator)
        return Stats(words[_IN_USE], words[_PEAK], words[_RESERVED])

    def chunks() -> list[Chunk]:
        message = ctypes.create_string_buffer(4096)
        record(ctypes.addressof(message), allocator)
        data = ctypes.create_string_buffer(size_of(ctypes.addressof(message)))
        to_array(ctypes.addressof(message), ctypes.addressof(data), len(data))
        end(ctypes.addressof(message))
        dump = bfc_memory_map_pb2.MemoryDump()
        dump.ParseFromString(data.raw)
        return sorted(Chunk(c.address, c.size, c.requested_size, c.in_use) for c in dump.chunk)

    return CpuAllocator(stats, lambda: clear(allocator) and None, chunks)


class Profile(NamedTuple):
    session: Any
    folder: Any


PROFILER: Any = _pywrap_profiler
"""Its `ProfilerSession` is made by `tf.profiler.experimental.start`, and one process can have one at a time."""
PROFILER_SESSION_CLASS = _Session = _pywrap_profiler.ProfilerSession


def start_profile() -> Profile | None:
    """A profile that records allocations and no Python calls; None when another one runs already."""
    folder = tempfile.TemporaryDirectory(prefix="lowtide-profile-")
    session = _Session()
    levels = {"host_tracer_level": 1, "python_tracer_level": 0, "device_tracer_level": 0}
    options = {} if tf.__version__.startswith("2.21.") else levels  # which takes none, and logs a warning for each
    try:
        session.start(folder.name, options)
    except (tf.errors.OpError, RuntimeError):
        folder.cleanup()
        return None
    return Profile(session, folder)


def stop_profile(profile: Profile) -> bytes:
    """The profile as a serialized XSpace. What the session itself returns is a lossy summary; its file is not."""
    with profile.folder as folder:
        profile.session.export_to_tb()
        return b"".join(file.read_bytes() for file in Path(folder).rglob("*.xplane.pb"))


def drop_profile(profile: Profile) -> None:
    """End a profile that nobody wants."""
    profile.session.stop()
    profile.folder.cleanup()


def make_ready(eager: Any, name: bytes, inputs: Any, outputs: int) -> bool:
    """Optimize and place a function as its first call does, and do not run it. Whether that worked.

    A call that was cancelled before it began is refused, after all this has been done for it. `eager`, `name`, `inputs`
    and `outputs` are what `Context.call_function` is given.
    """
    if not _refuses_cancelled_calls():
        return False
    return _call_cancelled(eager, name, inputs, outputs)


@cache
def _refuses_cancelled_calls() -> bool:
    """Tried out once: another TensorFlow might run it.

    In a thread of its own: the caller may be tracing, and a variable that is made meanwhile is the traced function's,
    which TensorFlow would trace once more for it.
    """
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_refuses_a_cancelled_call).result()


def _refuses_a_cancelled_call() -> bool:
    """Asked of a function that counts its calls."""
    calls = tf.Variable(0)
    counted = tf.function(lambda: calls.assign_add(1)).get_concrete_function()
    refused = _call_cancelled(context.context(), counted.inference_fn.name, counted.captured_inputs, 1)
    return refused and int(calls) == 0


def _call_cancelled(eager: Any, name: bytes, inputs: Any, outputs: int) -> bool:
    manager = cancellation.CancellationManager()
    manager.start_cancel()
    attributes = tuple(chain.from_iterable(eager.function_call_options.as_attrs().items()))
    text = name.decode() if isinstance(name, bytes) else name
    try:
        execute.execute_with_cancellation(
            text, num_outputs=outputs, inputs=inputs, attrs=attributes, ctx=eager, cancellation_manager=manager
        )
    except tf.errors.CancelledError:
        return True
    except tf.errors.OpError:
        return False  # the real call will say so
    return False


class MemoryEvent(NamedTuple):
    """`when` in nanoseconds since 1970; `thread` tells the lines of a profile apart."""

    when: int
    thread: int
    thread_name: str
    frees: bool
    address: int
    requested: int
    chunk: int
    in_use: int
    op: str
    temporary: bool
    shape: str
    dtype: str


_ALLOCATES, _FREES = "MemoryAllocation", "MemoryDeallocation"


def profile_events(xspace: bytes) -> list[MemoryEvent]:
    """Allocations and frees of a profile in the order they happened.

    A profile's times count from its start, which is a field of its "Task Environment".
    """
    space = xplane_pb2.XSpace()
    space.ParseFromString(xspace)
    start = _profile_start(space)
    events = []
    for plane in space.planes:
        wanted = {k: m.name == _FREES for k, m in plane.event_metadata.items() if m.name in (_ALLOCATES, _FREES)}
        fields = {k: m.name for k, m in plane.stat_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                if (frees := wanted.get(event.metadata_id)) is not None:
                    when = start + line.timestamp_ns + event.offset_ps // 1000
                    events.append(_memory_event(when, line, frees, compat._fields(event.stats, fields)))
    events.sort(key=lambda event: event.when)
    return events


def _profile_start(space: Any) -> int:
    for plane in space.planes:
        names = {k: m.name for k, m in plane.stat_metadata.items()}
        for stat in plane.stats:
            if names[stat.metadata_id] == "profile_start_time":
                return int(stat.uint64_value)
    return 0


def _memory_event(when: int, line: Any, frees: bool, fields: dict[str, Any]) -> MemoryEvent:
    kind = fields.get("data_type", 0)
    return MemoryEvent(
        when,
        line.id,
        line.name,
        frees,
        int(fields["addr"]),
        int(fields["requested_bytes"]),
        int(fields["allocation_bytes"]),
        int(fields["bytes_allocated"]),
        str(fields.get("tf_op", "")),
        fields.get("region_type") == "temp",
        str(fields.get("shape", "") or fields.get("tensor_shapes", "")),
        tf.as_dtype(kind).name if isinstance(kind, int) and kind else str(kind or ""),
    )


@contextmanager
def every_op(seen: Callable[[str, Any, bool], None]) -> Iterator[None]:
    """Inside the block `seen(op type, outputs, eager)` is called after each op that this thread runs or traces."""

    def callback(op_type: Any, inputs: Any, attrs: Any, outputs: Any, op_name: Any = None, graph: Any = None) -> None:
        seen(op_type.decode() if isinstance(op_type, bytes) else str(op_type), outputs, graph is None)

    op_callbacks.add_op_callback(callback)
    try:
        yield
    finally:
        op_callbacks.remove_op_callback(callback)


TRACING: Any = tracing_compilation
"""Its `_create_concrete_function(function_type, type_context, func_graph, options)` makes every trace."""
CREATE_TRACE = "_create_concrete_function"

IMPORTER: Any = importer
"""Its `_import_graph_def_internal` adds every imported graph to the default one; such ops have no traceback."""
IMPORT_GRAPH = "_import_graph_def_internal"

ITERATOR_CLASS: type = iterator_ops.OwnedIterator
"""Its `__next__` gives every element of a dataset that eager code iterates over."""

DATASET_CLASS: type = dataset_ops.DatasetV2
"""Its `__init__` runs for every stage of a tf.data pipeline."""

TAPE_CLASS: type = backprop.GradientTape

VARIABLE_CLASS: type = resource_variable_ops.BaseResourceVariable

NEW_VARIABLE_CLASS: type = resource_variable_ops.ResourceVariable
"""What `tf.Variable` makes. What an assignment returns is of the other class: a passing stand-in for the variable."""

V1_OPTIMIZER_CLASS: type = v1_optimizer.Optimizer

EAGER_TENSOR_CLASS: type = ops.EagerTensor
"""Garbage-collected, so that every live one can be listed."""

GRAPH_CLASS: type = ops.Graph

FUNC_GRAPH_CLASS: type = func_graph_module.FuncGraph

CONTEXT_CLASS: type = context.Context
"""Its `get_memory_info` and `reset_memory_stats` are what the public functions of that name call; traced functions run
through its `call_function`."""

NAME_SCOPE_CLASS: type = core.name_scope
"""Keras opens one around what a layer does; its `caller` is the layer."""

TRAINER_CLASS: type = trainer.TensorFlowTrainer
"""Its `make_train_function`, `make_test_function` and `make_predict_function` set what is called for each step."""


def devices_have_started() -> bool:
    """Whether TensorFlow has opened its devices, and with them chosen the CPU's allocator for good."""
    return bool(context.context()._initialized)


def when_devices_open(action: Callable[[], None]) -> None:
    """Call `action` once, right after TensorFlow has opened its devices; now, if it has. They open in one method."""
    whole = context.context()
    if whole._initialized:
        action()
        return

    before, waits = whole.ensure_initialized, [action]

    def ensure_initialized() -> None:
        before()
        if waits:
            vars(whole).pop("ensure_initialized", None)
            waits.pop()()

    whole.ensure_initialized = ensure_initialized  # this object's own, and only until then: every op calls it


def dataset_of(iterator: Any) -> Any:
    """The dataset that an iterator of eager code goes through; None for one of a graph."""
    return getattr(iterator, "_dataset", None)


def stages_before(dataset: Any) -> list[Any]:
    """The datasets that a dataset is made from."""
    return list(dataset._inputs())


def is_recording(tape: Any) -> bool:
    """Whether a tape is recording now."""
    return bool(tape._recording)


def value_of(variable: Any) -> Any:
    """The TensorFlow variable behind a Keras one; None until it is built."""
    return variable._value


def eager_handle(variable: Any) -> Any:
    """The handle of a variable that eager code made; None for one of a v1 graph."""
    handle = getattr(variable, "_handle", None)
    return handle if type(handle) is ops.EagerTensor else None


def parts_of_type(kind: Any) -> dict[str, Any]:
    """What a function was traced for in place of a dictionary, list or tuple: the type of each part, by how one gets
    at it. Nothing for what has no parts."""
    if isinstance(kind, default_types.Dict):
        return {f"[{key!r}]": part for key, part in kind.mapping.items()}
    if isinstance(kind, default_types.List):
        kind = kind.components_tuple
    return {f"[{i}]": part for i, part in enumerate(kind.components)} if isinstance(kind, default_types.Tuple) else {}


_BODY_CLASSES = (body_graphs.WhileCondFuncGraph, body_graphs.WhileBodyFuncGraph, body_graphs.CondBranchFuncGraph)


def bodies_of(graph: Any) -> list[Any]:
    """The graphs of the loops and branches of a graph, those inside each other too: it has them as functions."""
    functions = (getattr(function, "graph", None) for function in graph._functions.values())
    return [inner for inner in functions if isinstance(inner, _BODY_CLASSES)]


def without_output_suffix(op: str) -> str:
    """The name that an op was traced by: one whose result a function returns as it is runs with `_0` behind its own.

    The outputs of a function take the names of what they return. Under a tape these are all that the way back needs.
    """
    return op.removesuffix("_0")
