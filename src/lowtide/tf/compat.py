"""Every private TensorFlow and Keras name Lowtide leans on: one function a fact, each with a test.

The facts were checked on TensorFlow 2.21 and Keras 3.15. When a new release moves one of these names, the test in
`tests/tf/test_compat.py` that bears the function's name fails, and this is the only file to mend.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf
from keras.src.backend.tensorflow import trainer
from keras.src.optimizers import base_optimizer
from tensorflow.core.framework.graph_pb2 import GraphDef as GraphDef
from tensorflow.core.framework.node_def_pb2 import NodeDef
from tensorflow.core.protobuf import bfc_memory_map_pb2, config_pb2, meta_graph_pb2, rewriter_config_pb2
from tensorflow.python.client import session as session_module
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import polymorphic_function
from tensorflow.python.framework import function_def_to_graph
from tensorflow.python.grappler import tf_optimizer
from tensorflow.python.training import saver
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from lowtide.ops import BRANCHES, LOOPS, LOWERING_ATTRIBUTE, TRIPS_AT_ONCE
from lowtide.tf.counting import USE_BFC, variable

_LOWERED_LATER = "_lowtide_lower"
"""Takes the place of `LOWERING_ATTRIBUTE` while Grappler is at work."""


def default_device() -> str:
    """The full name of the device a step runs on unless told otherwise."""
    kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    return f"/job:localhost/replica:0/task:0/device:{kind}:0"


def is_only_device() -> bool:
    """Whether the default device is the only one of its kind."""
    return len(tf.config.list_logical_devices(default_device().split(":")[-2])) == 1


def optimize_graph(graph_def: GraphDef, graph: Any, keep: Iterable[str]) -> GraphDef:
    """What Grappler makes of `graph_def` when the nodes named in `keep` must survive.

    Grappler fuses only nodes that have a device, so each is given the default one, as the placer would; and it
    lowers loops and branches to Switch and Merge unless told not to. So the attribute that says so is put aside, and
    back afterwards for those outside functions: what is in functions stays functions. What it folds and fuses depends
    on shapes, so a function's inputs say theirs, and those of the variables behind them, as they do in a real run.
    """
    placed = GraphDef()
    placed.CopyFrom(graph_def)
    device = default_device()
    for node in placed.node:
        node.device = node.device or device
    functions = (node for function in placed.library.function for node in function.node_def)
    for node in (*placed.node, *functions):
        if node.attr[LOWERING_ATTRIBUTE].b and node.op in LOOPS | BRANCHES:
            node.attr[_LOWERED_LATER].b = True
        del node.attr[LOWERING_ATTRIBUTE]
    placeholders = _as_arguments(placed, graph)
    meta_graph = saver.export_meta_graph(graph_def=placed, graph=graph)
    meta_graph.collection_def.clear()  # variables of a v1 graph are there, with initializers that were left out
    wanted = meta_graph_pb2.CollectionDef()
    wanted.node_list.value.extend(dict.fromkeys(keep))
    meta_graph.collection_def["train_op"].CopyFrom(wanted)
    config = config_pb2.ConfigProto()
    options = config.graph_options.rewrite_options
    options.min_graph_nodes = -1
    options.meta_optimizer_iterations = rewriter_config_pb2.RewriterConfig.TWO
    optimized = tf_optimizer.OptimizeGraph(config, meta_graph, verbose=False)
    for node in optimized.node:
        if _LOWERED_LATER in node.attr:  # asked first: to pop what is not there would make it
            del node.attr[_LOWERED_LATER]
            node.attr[LOWERING_ATTRIBUTE].b = True
        if node.name in placeholders:
            node.CopyFrom(placeholders[node.name])
        waits = [name for name in node.input if name[1:] in placeholders and name[0] == "^"]
        for name in waits:  # for what is there from the start: a folded shape of an input
            node.input.remove(name)
    return optimized


def _as_arguments(placed: GraphDef, graph: Any) -> dict[str, Any]:
    """Make the placeholders of a function's inputs what they are when it is run; the placeholders, by name."""
    inputs = {tensor.op.name: (place, tensor) for place, tensor in enumerate(getattr(graph, "inputs", ()))}
    outside = {inside.op.name: tensor for tensor, inside in getattr(graph, "captures", ())}
    replaced = {}
    for node in placed.node:
        if node.op != "Placeholder" or node.name not in inputs:
            continue
        place, tensor = inputs[node.name]
        replaced[node.name] = NodeDef()
        replaced[node.name].CopyFrom(node)
        node.op = "_Arg"
        node.attr.clear()
        node.attr["T"].type = tensor.dtype.as_datatype_enum
        node.attr["index"].i = place
        data = getattr(outside.get(node.name), "_handle_data", None)
        if tensor.dtype != tf.resource:
            node.attr["_output_shapes"].list.shape.add().CopyFrom(tensor.shape.as_proto())
        elif data is not None and data.is_set and len(data.shape_and_type) == 1:
            node.attr["_handle_shapes"].list.shape.add().CopyFrom(data.shape_and_type[0].shape)
            node.attr["_handle_dtypes"].list.type.append(data.shape_and_type[0].dtype)
    return replaced


def limit_trips_at_once(node: Any, trips: int) -> None:
    """Let a loop that is lowered have so many trips under way at once: TensorFlow allows ten or more."""
    if LOWERING_ATTRIBUTE in node.attr and node.op in LOOPS:
        node.attr[TRIPS_AT_ONCE].i = trips


def end_with(function: Any, last: str) -> None:
    """Whoever waits for a call of `function` waits for the node `last`: of a body whose ops are put among those around,
    TensorFlow lets others wait for the control outputs only, and one without effects has none."""
    function.control_ret[_END] = last
    function.signature.control_output.append(_END)


_END = "lowtide_end"


def functional_bodies(graph_def: GraphDef) -> GraphDef:
    """A copy whose loops and branches are not lowered: the ops of bodies then go by the names that they have there."""
    result = GraphDef()
    result.CopyFrom(graph_def)
    for node in result.node:
        node.attr.pop(LOWERING_ATTRIBUTE, None)
    return result


@contextlib.contextmanager
def without_grappler() -> Iterator[None]:
    """Functions called inside run as they are; nothing global is changed, and nothing outlives the block."""
    config = config_pb2.ConfigProto()
    config.CopyFrom(context.context().config)
    config.allow_soft_placement = True
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    owner = context.context()
    before = owner.function_call_options
    owner.function_call_options = context.FunctionCallOptions(
        executor_type=before.executor_type, config_proto=config
    )
    try:
        yield
    finally:
        owner.function_call_options = before


def variable_type(handle: Any) -> tuple[str, tuple[int, ...] | None] | None:
    """dtype and shape of the variable behind an eager or symbolic resource handle; None for other resources."""
    data = getattr(handle, "_handle_data", None)
    if data is None or not data.is_set or len(data.shape_and_type) != 1:
        return None
    entry = data.shape_and_type[0]
    if entry.shape.unknown_rank or any(d.size < 0 for d in entry.shape.dim):
        return tf.as_dtype(entry.dtype).name, None
    return tf.as_dtype(entry.dtype).name, tuple(d.size for d in entry.shape.dim)


def captures(concrete: Any) -> list[tuple[Any, Any]]:
    """(tensor outside, placeholder inside) for each thing a ConcreteFunction closes over, in call order."""
    inside = concrete.graph.inputs[len(concrete.graph.inputs) - len(concrete.captured_inputs) :]
    return list(zip(concrete.captured_inputs, inside, strict=True))


def capture_into_current_graph(outside: Any) -> Any:
    """The symbol in the function being traced that stands for an outside tensor or handle."""
    return tf.compat.v1.get_default_graph().capture(outside)


def control_outputs(graph: Any) -> list[Any]:
    """The ops of a FuncGraph that must run although no output reads them, by name: TensorFlow keeps them in a set."""
    return sorted(getattr(graph, "control_outputs", ()), key=lambda op: op.name)


def function_as_graph(function: Any) -> tuple[GraphDef, dict[str, str]]:
    """A FunctionDef as a GraphDef whose arguments are placeholders, and its nested tensor names as flat ones."""
    graph_def, names = function_def_to_graph.function_def_to_graph_def(function)
    return graph_def, names


def register_functions(library: Any) -> None:
    """Make the functions of a GraphDef's library callable; importing the graph alone does not."""
    for function in library.function:
        context.context().add_function_def(function)


def build_for_training(model: Any, data: Any) -> None:
    """Create the variables of model, loss, metrics and optimizer without computing anything, where Keras can.

    A model that only has a `train_step` has no `call` to follow; its variables come with the first trace, as in `fit`.
    """
    with contextlib.suppress(NotImplementedError, RuntimeError, ValueError, TypeError):
        model._symbolic_build(data_batch=data)


def replicas(model: Any) -> int:
    """How many devices a Keras model trains on at once."""
    return int(model.distribute_strategy.num_replicas_in_sync)


def per_replica(value: Any) -> tuple[Any, ...]:
    """What each device gets of a batch that a strategy has distributed."""
    return tuple(value.values)


def per_replica_spec(value: Any, specs: Sequence[Any]) -> Any:
    """What a function is traced with to take a batch distributed like `value`, whose parts are like `specs`."""
    return type(tf.type_spec_from_value(value))(*specs)


def address_of(tensor: Any) -> int | None:
    """Where an eager tensor, or the variable behind an eager handle, lies in the CPU's memory; None elsewhere."""
    if "GPU" in default_device():
        return None
    try:
        if tensor.dtype == tf.resource:
            kind = variable_type(tensor)
            if kind is None:
                return None
            tensor = tf.raw_ops.ReadVariableOp(resource=tensor, dtype=tf.as_dtype(kind[0]))
        return int(shared_array(tensor).__array_interface__["data"][0])
    except (AttributeError, TypeError, tf.errors.OpError):
        return None


def shared_array(tensor: Any) -> Any:
    """An array that shares an eager CPU tensor's buffer."""
    return tensor._numpy()


def layers_of(model: Any) -> list[Any]:
    """A Keras model and every layer inside it."""
    return list(model._flatten_layers())


def handle_of(variable: Any) -> Any:
    """The resource handle behind a Keras variable."""
    return variable.value.handle


def inputs_of(model: Any) -> Any:
    """The symbolic inputs of a built model, structured as it takes them."""
    return _functional(model)._inputs_struct


def _functional(model: Any) -> Any:
    """A Sequential keeps the functional model it stands for inside."""
    return model._functional if isinstance(model, keras.Sequential) else model


def targets_like(model: Any, make: Callable[[Any, Any], Any]) -> Any:
    """`make(shape, dtype)` for each target that the compiled loss of a built model expects.

    A loss that takes class numbers has targets without the last dimension.
    """
    loss = model.loss
    outputs = _functional(model)._outputs_struct
    if loss is None:
        return None
    flat_outputs = tf.nest.flatten(outputs)
    flat_losses = tf.nest.flatten(loss) if isinstance(loss, dict | list | tuple) else [loss] * len(flat_outputs)
    if len(flat_losses) != len(flat_outputs):
        flat_losses = [flat_losses[0]] * len(flat_outputs)
    targets = []
    for output, one in zip(flat_outputs, flat_losses, strict=True):
        name = one if isinstance(one, str) else getattr(one, "name", None) or getattr(one, "__name__", None)
        sparse = "sparse" in str(name).lower()
        targets.append(make(output.shape[:-1], "int32") if sparse else make(output.shape, output.dtype))
    return tf.nest.pack_sequence_as(outputs, targets)


def frames(op: Any) -> list[Any]:
    """Python frames (filename, lineno, name) that created `op`, outermost first, TensorFlow's own left out."""
    trace = op.traceback
    return list(trace.get_user_frames()) if trace is not None else []


def is_compiled_by_xla(function: Any) -> bool:
    """Whether a tf.function was made with `jit_compile=True`."""
    return bool(function._jit_compile)


@contextlib.contextmanager
def replaced(owner: type, name: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Iterator[None]:
    """`owner.name` is `make(original)` inside the block."""
    original = getattr(owner, name)
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


FUNCTION_CLASS: type = polymorphic_function.Function
"""Its `__call__` is every call of a tf.function."""

SESSION_CLASS: type = session_module.BaseSession
"""Its `run` is every `tf.compat.v1.Session.run`."""

TRAINER_CLASS: type = trainer.TensorFlowTrainer
"""Its `make_train_function` makes what `fit` and `train_on_batch` call for each step."""

OPTIMIZER_CLASS: type = base_optimizer.BaseOptimizer
"""Its `apply` is every update by a Keras optimizer."""


def memory_events(xspace: bytes) -> list[tuple[int, str, dict[str, Any]]]:
    """(picoseconds, "MemoryAllocation" or "MemoryDeallocation", fields) of a profile, in the order they happened."""
    space = xplane_pb2.XSpace()
    space.ParseFromString(xspace)
    events = []
    for plane in space.planes:
        wanted = {k: m.name for k, m in plane.event_metadata.items() if m.name.startswith("Memory")}
        fields = {k: m.name for k, m in plane.stat_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                if name := wanted.get(event.metadata_id):
                    when = line.timestamp_ns * 1000 + event.offset_ps
                    events.append((when, name, _fields(event.stats, fields)))
    events.sort(key=lambda event: event[0])
    return events


def op_seconds(xspace: bytes) -> dict[str, float]:
    """Seconds that each op of a profile took, by its name, all its runs together. Events of ops are "name:type"."""
    space = xplane_pb2.XSpace()
    space.ParseFromString(xspace)
    taken: dict[str, float] = {}
    for plane in space.planes:
        ops = {k: m.name.partition(":")[0] for k, m in plane.event_metadata.items() if _OP_EVENT.fullmatch(m.name)}
        for line in plane.lines:
            for event in line.events:
                if name := ops.get(event.metadata_id):
                    taken[name] = taken.get(name, 0.0) + event.duration_ps * 1e-12
    return taken


_OP_EVENT = re.compile(r"[\w.][\w.\\/>-]*:_?[A-Z]\w*")


ALLOCATOR_MAP_PREFIX = "TF_BFC_MEMORY_DUMP"
"""Environment variable that says where `allocator_map` may write; it must be set before TensorFlow starts."""

_ALLOCATE = "_ZN3tsl12BFCAllocator11AllocateRawEmmRKNS_20AllocationAttributesE"
_DEALLOCATE = "_ZN3tsl12BFCAllocator13DeallocateRawEPv"
_SINGLETON = "_ZN10tensorflow12ProcessState9singletonEv"
_GET_CPU_ALLOCATOR = "_ZN10tensorflow12ProcessState15GetCPUAllocatorEi"
_WRITE_MEMORY_MAP = "_ZN3tsl12BFCAllocator19MaybeWriteMemoryMapEv"


def allocator_map() -> list[tuple[int, int, int, bool]] | None:
    """(address, bytes, requested bytes, in use) of every chunk of the CPU's BFC allocator, by address.

    TensorFlow writes this map when it runs out of memory; here it is asked to, through the linker's names of the
    functions that do it. None when the CPU is not on BFC, or this TensorFlow has no such functions.
    """
    prefix = os.environ.get(ALLOCATOR_MAP_PREFIX)
    if not prefix or variable(USE_BFC) != "1" or "GPU" in default_device():
        return None
    try:
        library, allocator = _cpu_allocator()
        write = ctypes.CFUNCTYPE(None, ctypes.c_void_p)((_WRITE_MEMORY_MAP, library))
    except (AttributeError, OSError, StopIteration):
        return None
    of_the_user = _allocator_maps(prefix)
    write(allocator)
    files = _allocator_maps(prefix) - of_the_user
    if not files:
        return None
    dump = bfc_memory_map_pb2.MemoryDump()
    dump.ParseFromString(max(files).read_bytes())  # names end in the time of writing
    for file in files:
        file.unlink()
    return sorted((c.address, c.size, c.requested_size, c.in_use) for c in dump.chunk)


def _allocator_maps(prefix: str) -> set[Path]:
    return set(Path(prefix).parent.glob(f"{glob.escape(Path(prefix).name)}_*"))


def grow_allocator(size: int) -> bool:
    """Give the CPU's BFC allocator one region of at least `size` bytes, without starting TensorFlow's devices.

    A limited allocator that grows by and by ends up in pieces; one that grows at once has its whole limit in one.
    """
    raw = raw_allocator()
    if raw is None:
        return False
    allocate, free = raw
    address = allocate(size)
    free(address)
    return address is not None


def raw_allocator() -> tuple[Callable[[int], Any], Callable[[Any], None]] | None:
    """Allocate (None when refused) and free of the CPU's BFC allocator itself; None when it is not on BFC."""
    if variable(USE_BFC) != "1" or tf.config.list_physical_devices("GPU"):
        return None
    pointer, count = ctypes.c_void_p, ctypes.c_size_t
    try:
        library, allocator = _cpu_allocator()
        allocate = ctypes.CFUNCTYPE(pointer, pointer, count, count, pointer)((_ALLOCATE, library))
        free = ctypes.CFUNCTYPE(None, pointer, pointer)((_DEALLOCATE, library))
    except (AttributeError, OSError, StopIteration):
        return None
    attributes = _AllocationAttributes(retry_on_failure=False)
    return (
        lambda size: allocate(allocator, 64, size, ctypes.addressof(attributes)),
        lambda address: free(allocator, address) if address is not None else None,
    )


class _AllocationAttributes(ctypes.Structure):
    _fields_ = (
        ("retry_on_failure", ctypes.c_bool),
        ("allocation_will_be_logged", ctypes.c_bool),
        ("freed_by_func", ctypes.c_void_p),
    )


def _cpu_allocator() -> tuple[ctypes.CDLL, Any]:
    pointer = ctypes.c_void_p
    library = ctypes.CDLL(next(str(p) for p in Path(tf.__file__).parent.glob("libtensorflow_framework.so.*")))
    singleton = ctypes.CFUNCTYPE(pointer)((_SINGLETON, library))
    get_allocator = ctypes.CFUNCTYPE(pointer, pointer, ctypes.c_int)((_GET_CPU_ALLOCATOR, library))
    return library, get_allocator(singleton(), 0)


def _fields(stats: Sequence[Any], names: dict[int, str]) -> dict[str, Any]:
    found = {}
    for stat in stats:
        kind = stat.WhichOneof("value")
        value = getattr(stat, kind)
        found[names[stat.metadata_id]] = names[value] if kind == "ref_value" else value
    return found


_NEEDED = {"bfloat16": {"avx512f", "avx_ne_convert"}, "float16": {"avx512_fp16", "amx_fp16", "avx_ne_convert"}}
"""Instructions of the processor, any of which will do."""


@cache
def onednn_computes(dtype: str) -> bool:
    """Whether TensorFlow has oneDNN compute products and convolutions of 16 bits on this processor: else its own
    kernels do, which for a product need both operands and the result once more in 32 bits."""
    flags = {flag for line in _cpu_info() if line.startswith("flags") for flag in line.split()}
    return not flags or bool(_NEEDED.get("float16" if dtype == "half" else dtype, flags) & flags)


def _cpu_info() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
