"""Every fact of `lowtide.tf.compat`, checked on the TensorFlow and Keras that are installed."""

from __future__ import annotations

from functools import partial
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from lowtide.ops import BRANCHES, LOWERING_ATTRIBUTE
from lowtide.tf import compat
from lowtide.tf.rewrite import as_function, ordered_graph
from lowtide.tf.trace import capture_function
from tests.tf.children import run_script

pytestmark = pytest.mark.tensorflow


def traced(function: Any, *specs: Any) -> Any:
    return tf.function(function).get_concrete_function(*specs)


ROWS = tf.TensorSpec([None, 8])


def test_default_device() -> None:
    assert compat.default_device().endswith("device:CPU:0") or "GPU" in compat.default_device()
    with tf.device(compat.default_device()):
        assert compat.default_device() in tf.zeros([1]).device


def optimized(concrete: Any) -> Any:
    graph = concrete.graph
    keep = [t.op.name for t in (*graph.inputs, *graph.outputs)]
    return compat.optimize_graph(graph.as_graph_def(), graph, keep)


def optimized_kinds(concrete: Any) -> list[str]:
    return [node.op for node in optimized(concrete).node]


def test_optimize_graph_fuses_as_it_does_before_a_real_run() -> None:
    weights, bias = tf.ones([8, 8]), tf.ones([8])
    concrete = traced(lambda x: tf.nn.relu(tf.nn.bias_add(tf.matmul(x, weights), bias)), ROWS)
    assert "_FusedMatMul" in optimized_kinds(concrete)
    assert "Relu" not in optimized_kinds(concrete)


def test_optimize_graph_knows_the_shapes_of_variables_as_a_real_run_does() -> None:
    weights, bias = tf.Variable(tf.ones([8, 8])), tf.Variable(tf.ones([8]))
    concrete = traced(lambda x: tf.nn.relu(tf.matmul(x, weights) + bias), ROWS)
    assert "_FusedMatMul" in optimized_kinds(concrete)
    inputs = {tensor.op.name for tensor in concrete.graph.inputs}
    assert all(node.op == "Placeholder" for node in optimized(concrete).node if node.name in inputs)


def loop(x: Any) -> Any:
    return tf.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, tf.tanh(x)), [0, x])[1]


def loop_of_loops(x: Any) -> Any:
    return tf.while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, loop(x)), [0, x])[1]


LOWERED = {"Switch", "Merge", "Enter", "NextIteration", "Exit"}


def loops_of(nodes: Any) -> list[Any]:
    return [node for node in nodes if node.op in ("While", "StatelessWhile")]


def test_optimize_graph_keeps_a_loop_a_loop() -> None:
    kinds = optimized_kinds(traced(loop, ROWS))
    assert {"While", "StatelessWhile"}.intersection(kinds)
    assert not LOWERED.intersection(kinds)


def test_optimize_graph_leaves_it_to_tensorflow_to_lower_the_loops_that_are_not_in_functions() -> None:
    called = tf.function(loop_of_loops)
    graph_def = optimized(traced(lambda x: called(x) + 1.0, ROWS))  # Grappler inlines the call
    (outer,) = loops_of(graph_def.node)
    (inner,) = loops_of(node for function in graph_def.library.function for node in function.node_def)
    assert outer.attr[LOWERING_ATTRIBUTE].b
    assert LOWERING_ATTRIBUTE not in inner.attr


def test_optimize_graph_leaves_it_to_tensorflow_to_lower_a_branch() -> None:
    graph_def = optimized(traced(lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: tf.tanh(x), lambda: x), ROWS))
    (branch,) = [node for node in graph_def.node if node.op in BRANCHES]
    assert branch.attr[LOWERING_ATTRIBUTE].b
    assert not LOWERED.intersection(node.op for node in graph_def.node)


def test_optimize_graph_leaves_what_must_be_kept_and_the_original_alone() -> None:
    concrete = traced(lambda x: tf.identity(tf.identity(x, name="a"), name="b"), ROWS)
    graph_def = concrete.graph.as_graph_def()
    before = graph_def.SerializeToString(deterministic=True)
    optimized = compat.optimize_graph(graph_def, concrete.graph, ["a", "x"])
    assert "a" in {node.name for node in optimized.node}
    assert graph_def.SerializeToString(deterministic=True) == before


def graphs_of(call: Any) -> list[Any]:
    """The graphs of what TensorFlow ran, before and after everything it does to them."""
    owner = context.context()
    owner.enable_graph_collection()
    try:
        call()
        return list(owner.export_run_metadata().function_graphs)
    finally:
        owner.disable_graph_collection()


def executed_kinds(call: Any) -> set[str]:
    """The ops that TensorFlow ran, by the names it knows before oneDNN's own."""
    return {node.op for graphs in graphs_of(call) for node in graphs.post_optimization_graph.node}


def run_of_loop(change: Any) -> list[Any]:
    """The nodes that TensorFlow ran of a captured `loop`, its graph changed before: those of the loop, if lowered."""
    x = tf.ones([4, 8])
    step = capture_function(tf.function(loop), (x,), {})
    graph_def = change(step.graph_def)
    graphs = graphs_of(lambda: np.testing.assert_allclose(as_function(step, graph_def)(x)[0], loop(x)))
    return [node for each in graphs for part in each.partition_graphs for node in part.node]


def limited(graph_def: Any, trips: int) -> Any:
    for node in graph_def.node:
        compat.limit_trips_at_once(node, trips)
    return graph_def


def test_limit_trips_at_once() -> None:
    runs = [run_of_loop(lambda graph_def: graph_def), *(run_of_loop(partial(limited, trips=n)) for n in (1, 2))]
    at_once = [{node.attr["parallel_iterations"].i for node in nodes if node.op == "Enter"} for nodes in runs]
    assert at_once == [{10}, {1}, {2}]


def two_results(x: Any) -> Any:
    first, second = tf.cond(tf.reduce_sum(x) > 0, lambda: (tf.tanh(x), tf.exp(x)), lambda: (x, x))
    return tf.sin(first), tf.cos(second)


@pytest.mark.parametrize("next_one", ["Sin", "Cos"])
def test_end_with(next_one: str) -> None:
    """Whichever op comes next after a branch comes after all of it, also after what it does not read."""
    x = tf.ones([4, 8])
    step = capture_function(tf.function(two_results), (x,), {})
    nodes = step.graph_def.node
    reads = {"Sin": "Cos", "Cos": "Sin"}
    order = sorted(range(len(nodes)), key=lambda i: (nodes[i].op in reads) + 2 * (nodes[i].op == reads[next_one]))
    last = [i for i in order if nodes[i].op not in reads and any(e in reads for e in _before(nodes, i))]
    call = as_function(step, ordered_graph(step.graph_def, [i for i in order if i not in last] + last))
    parts = [part for each in graphs_of(lambda: call(x)) for part in each.partition_graphs]
    run = [node for part in parts for node in part.node]
    assert LOWERED.intersection(node.op for node in run)
    (place,) = [i for i, node in enumerate(run) if node.op == next_one]
    assert {"Tanh", "Exp"} <= _before(run, place)


def _before(nodes: Any, place: int) -> set[str]:
    """The kinds of all nodes that this one waits for, directly or not, and its own."""
    by_name = {node.name: node for node in nodes}
    waits, before = [nodes[place].name], set()
    while waits:
        name = waits.pop()
        if name not in before:
            before.add(name)
            waits += [text.lstrip("^").partition(":")[0] for text in by_name[name].input]
    return {by_name[name].op for name in before}


def test_functional_bodies() -> None:
    graph_def = optimized(traced(loop, ROWS))
    before = graph_def.SerializeToString(deterministic=True)
    assert not any(LOWERING_ATTRIBUTE in node.attr for node in compat.functional_bodies(graph_def).node)
    assert graph_def.SerializeToString(deterministic=True) == before
    nodes = run_of_loop(compat.functional_bodies)
    assert loops_of(nodes)
    assert not LOWERED.intersection(node.op for node in nodes)


def fusable() -> Any:
    weights = tf.constant(np.ones([8, 8], np.float32))
    bias = tf.constant(np.ones([8], np.float32))
    return tf.function(lambda x: tf.nn.relu(tf.nn.bias_add(tf.matmul(x, weights), bias)))


def test_without_grappler_runs_a_function_as_it_is() -> None:
    x = tf.ones([4, 8])
    assert "_FusedMatMul" in executed_kinds(lambda: fusable()(x))
    with compat.without_grappler():
        assert "_FusedMatMul" not in executed_kinds(lambda: fusable()(x))
    assert "_FusedMatMul" in executed_kinds(lambda: fusable()(x))


def test_without_grappler_leaves_everything_as_it_was() -> None:
    owner = context.context()
    before, config = owner.function_call_options, owner.config.SerializeToString()
    with compat.without_grappler():
        assert owner.function_call_options is not before
    assert owner.function_call_options is before
    with pytest.raises(ZeroDivisionError), compat.without_grappler():
        raise ZeroDivisionError
    assert owner.function_call_options is before
    assert owner.config.SerializeToString() == config


def test_variable_type() -> None:
    variable = tf.Variable(tf.zeros([2, 3], tf.float16))
    assert compat.variable_type(variable.handle) == ("float16", (2, 3))
    concrete = traced(lambda: variable + 1)
    assert compat.variable_type(concrete.captured_inputs[0]) == ("float16", (2, 3))
    growing = tf.Variable(tf.zeros([2, 3]), shape=[None, 3])
    assert compat.variable_type(growing.handle) == ("float32", None)
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
    assert compat.variable_type(table.resource_handle) is None


def test_captures() -> None:
    variable, small, large = tf.Variable(1.0), tf.constant(np.float32([1, 2])), tf.constant(np.ones(999, np.float32))
    concrete = traced(lambda x: x + variable + tf.reduce_sum(small) + tf.reduce_sum(large), tf.TensorSpec([]))
    pairs = compat.captures(concrete)
    assert all(o is t for (o, _), t in zip(pairs, (variable.handle, small, large), strict=True))
    assert [outside.dtype for outside, _ in pairs] == [inside.dtype for _, inside in pairs]
    assert [inside.op.type for _, inside in pairs] == ["Placeholder", "Const", "Placeholder"]  # small ones are baked in


def test_capture_into_current_graph() -> None:
    variable = tf.Variable(3.0)

    @tf.function
    def read() -> Any:
        handle = compat.capture_into_current_graph(variable.handle)
        return tf.raw_ops.ReadVariableOp(resource=handle, dtype=tf.float32)

    assert float(read()) == 3.0


def test_control_outputs() -> None:
    variable = tf.Variable(1.0)
    concrete = traced(lambda: variable.assign_add(1.0).op and None)
    assert [op.type for op in compat.control_outputs(concrete.graph)] == ["AssignAddVariableOp"]
    assert compat.control_outputs(tf.Graph()) == []


def test_function_as_graph() -> None:
    inner = tf.function(lambda x: tf.split(x, 2, axis=1)[1] * 2.0, autograph=False)
    function = traced(inner.python_function, ROWS).function_def
    graph_def, names = compat.function_as_graph(function)
    assert [node.op for node in graph_def.node if node.name == function.signature.input_arg[0].name] == ["Placeholder"]
    returned = names[function.ret[function.signature.output_arg[0].name]]
    assert returned.partition(":")[0] in {node.name for node in graph_def.node}


def test_register_functions() -> None:
    concrete = traced(lambda x: tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2.0), [0, x])[1], ROWS)
    graph_def = compat.GraphDef()
    graph_def.CopyFrom(concrete.graph.as_graph_def())
    for function in graph_def.library.function:
        function.signature.name += "_renamed"
    compat.register_functions(graph_def.library)
    for function in graph_def.library.function:
        assert context.context().has_function(function.signature.name)


def compiled(loss: str = "mse", **options: Any) -> Any:
    layers = [keras.layers.Dense(4, name="first"), keras.layers.Dense(3, name="last")]
    model = keras.Sequential([keras.Input([8]), *layers])
    model.compile("adam", loss, **options)
    return model


def test_build_for_training() -> None:
    model = compiled(metrics=["mae"])
    compat.build_for_training(model, (tf.zeros([5, 8]), tf.zeros([5, 3])))
    weights = sum(int(np.prod(v.shape)) for v in model.trainable_variables)
    slots = sum(int(np.prod(v.shape)) for v in model.optimizer.variables)
    assert slots >= 2 * weights
    assert model.metrics_variables


def test_build_for_training_changes_no_weight() -> None:
    model = compiled()
    before = [v.numpy() for v in model.variables]
    compat.build_for_training(model, (tf.ones([5, 8]), tf.ones([5, 3])))
    assert all(np.array_equal(a, v.numpy()) for a, v in zip(before, model.variables, strict=True))


def test_layers_of() -> None:
    inner = compiled()
    outer = keras.Sequential([keras.Input([8]), inner, keras.layers.Dense(1, name="head")])
    assert {"first", "last", "head", inner.name, outer.name} <= {layer.name for layer in compat.layers_of(outer)}


def test_handle_of() -> None:
    model = compiled()
    kernel = model.trainable_variables[0]
    assert compat.variable_type(compat.handle_of(kernel)) == ("float32", (8, 4))
    concrete = traced(lambda x: model(x), ROWS)
    assert any(outside is compat.handle_of(kernel) for outside, _ in compat.captures(concrete))


def test_inputs_of() -> None:
    assert tf.nest.flatten(compat.inputs_of(compiled()))[0].shape == (None, 8)
    ends = {"a": keras.Input([2], name="a"), "b": keras.Input([3], name="b", dtype="int32")}
    functional = keras.Model(ends, keras.layers.Concatenate()([ends["a"], keras.ops.cast(ends["b"], "float32")]))
    assert {name: (t.shape, t.dtype) for name, t in compat.inputs_of(functional).items()} == {
        "a": ((None, 2), "float32"), "b": ((None, 3), "int32"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("mse", ((None, 3), "float32")),
        ("sparse_categorical_crossentropy", ((None,), "int32")),
        (keras.losses.SparseCategoricalCrossentropy(from_logits=True), ((None,), "int32")),
        (keras.losses.CategoricalCrossentropy(), ((None, 3), "float32")),
        (keras.losses.sparse_categorical_crossentropy, ((None,), "int32")),
    ],
)
def test_targets_like(loss: Any, expected: Any) -> None:
    made = tf.nest.flatten(compat.targets_like(compiled(loss), lambda shape, dtype: f"{tuple(shape)} {dtype}"))
    assert made == [f"{expected[0]} {expected[1]}"]


def test_targets_like_of_several_outputs() -> None:
    x = keras.Input([4])
    model = keras.Model(x, {"a": keras.layers.Dense(2, name="a")(x), "b": keras.layers.Dense(3, name="b")(x)})
    model.compile("sgd", {"a": "mse", "b": "sparse_categorical_crossentropy"})
    made = compat.targets_like(model, lambda shape, dtype: f"{tuple(shape)} {dtype}")
    assert made == {"a": "(None, 2) float32", "b": "(None,) int32"}


def test_frames() -> None:
    concrete = traced(lambda x: tf.tanh(x), ROWS)
    (op,) = [op for op in concrete.graph.get_operations() if op.type == "Tanh"]
    innermost = [frame for frame in compat.frames(op) if frame.filename == __file__][-1]
    assert innermost.lineno == test_frames.__code__.co_firstlineno + 1


def test_is_compiled_by_xla() -> None:
    assert compat.is_compiled_by_xla(tf.function(abs, jit_compile=True))
    assert not compat.is_compiled_by_xla(tf.function(abs))
    assert not compat.is_compiled_by_xla(tf.function(abs, jit_compile=False))


class Owner:
    def greet(self) -> str:
        return "hello"


def test_replaced() -> None:
    original = Owner.greet
    with compat.replaced(Owner, "greet", lambda greet: lambda self: greet(self).upper()):
        assert Owner().greet() == "HELLO"
    assert Owner.greet is original
    with pytest.raises(ZeroDivisionError), compat.replaced(Owner, "greet", lambda greet: greet):
        raise ZeroDivisionError
    assert Owner.greet is original


def calls(owner: type, name: str, action: Any) -> int:
    """How often `owner.name` is called while `action` runs."""
    seen = []

    def counting(original: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            seen.append(name)
            return original(*arguments, **options)

        return call

    with compat.replaced(owner, name, counting):
        action()
    return len(seen)


def test_function_class_is_what_every_call_of_a_tf_function_goes_through() -> None:
    double = tf.function(lambda x: x * 2)
    assert calls(compat.FUNCTION_CLASS, "__call__", lambda: (double(1), double(2))) == 2


def test_session_class_is_what_every_session_run_goes_through() -> None:
    def run() -> None:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            session.run(tf.constant(1))

    assert calls(compat.SESSION_CLASS, "run", run) == 1


@pytest.mark.parametrize("train", ["fit", "train_on_batch"])
def test_trainer_class_is_where_fit_and_train_on_batch_get_their_step(train: str) -> None:
    x, y = np.zeros([4, 8], np.float32), np.zeros([4, 3], np.float32)
    options = {"verbose": 0} if train == "fit" else {}
    assert calls(compat.TRAINER_CLASS, "make_train_function", lambda: getattr(compiled(), train)(x, y, **options)) == 1


def test_optimizer_class_is_what_every_keras_update_goes_through() -> None:
    weight = keras.Variable(np.ones(2, np.float32))

    def update() -> None:
        keras.optimizers.Adam().apply_gradients([(tf.ones(2), weight)])
        keras.optimizers.SGD().apply([tf.ones(2)], [weight])

    assert calls(compat.OPTIMIZER_CLASS, "apply", update) == 2


ALLOCATOR_FACTS = """
import json
import os
from pathlib import Path
import tensorflow as tf
from lowtide.tf import compat, profile

double = tf.function(lambda x: tf.linalg.matmul(x, x))
x = tf.ones([300, 256])[:256]
double(x)
events, seconds = profile.profiled(lambda: double(x))
kept = [tf.zeros([n * 1000]) for n in range(1, 30)]
del kept[::3]
of_the_user = Path(os.environ["TF_BFC_MEMORY_DUMP"] + "_bfc_cpu_allocator_for_gpu.7")
of_the_user.write_text("a map from another day")
chunks = compat.allocator_map()
print(json.dumps({
    "left": [file.name for file in of_the_user.parent.glob("allocator*")] == [of_the_user.name],
    "events": events,
    "seconds": seconds,
    "chunks": chunks,
    "in_use": tf.config.experimental.get_memory_info("CPU:0")["current"],
    "again": len(compat.allocator_map()),
    "counts": profile.counts_bytes(),
}))
"""


@pytest.fixture(scope="module")
def allocator_facts() -> Any:
    return run_script(ALLOCATOR_FACTS)


def test_memory_events(allocator_facts: Any) -> None:
    result = 256 * 256 * 4
    allocations = [event for event in allocator_facts["events"] if event[1] > 0]
    assert [(op, requested) for op, requested, *_ in allocations if requested >= result] == [("MatMul", result)]
    assert all(chunk >= requested for _, requested, chunk, *_ in allocations)
    freed = {address for _, requested, _, address, *_ in allocator_facts["events"] if requested < 0}
    product = next(event for event in allocations if event[1] == result)
    assert product[3] in freed
    assert product[5] == [256, 256], "the shape of the tensor that it is for"
    assert allocator_facts["counts"]


def test_op_seconds(allocator_facts: Any) -> None:
    """The product of the function is there by the name of its node; events that are no ops are not."""
    assert 0 < allocator_facts["seconds"]["MatMul"] < 10
    assert not any("Memory" in name or "::" in name for name in allocator_facts["seconds"])


def test_allocator_map(allocator_facts: Any) -> None:
    chunks = allocator_facts["chunks"]
    assert sum(size for _, size, _, in_use in chunks if in_use) == allocator_facts["in_use"]
    assert all(size % 256 == 0 for _, size, _, _ in chunks)
    ends = [address + size for address, size, _, _ in chunks]
    assert all(end <= start for end, (start, *_) in zip(ends, chunks[1:], strict=False))
    asked = [requested for _, _, requested, in_use in chunks if in_use]
    assert {n * 4000 for n in range(1, 30) if n % 3 != 1} <= set(asked)
    assert allocator_facts["again"] >= len(chunks) - 5
    assert allocator_facts["left"], "only the map that was asked for is deleted, not those of the user"


def test_allocator_map_is_none_where_there_is_no_such_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_BFC_MEMORY_DUMP", raising=False)
    assert compat.allocator_map() is None


def test_replicas() -> None:
    assert compat.replicas(compiled()) == 1


def test_is_only_device() -> None:
    assert compat.is_only_device()


TWO_DEVICES = """
import json
import tensorflow as tf
from lowtide.tf import compat

cpu, two = tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
tf.config.set_logical_device_configuration(cpu, two)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
data = tf.data.Dataset.from_tensors(tf.reshape(tf.range(12), [6, 2]))
(batch,) = strategy.experimental_distribute_dataset(data.unbatch().batch(6))
spec = compat.per_replica_spec(batch, [tf.TensorSpec([None, 2], tf.int32)] * 2)
traced = tf.function(lambda x: strategy.run(tf.square, [x])).get_concrete_function(spec)
print(json.dumps({
    "parts": [part.numpy().tolist() for part in compat.per_replica(batch)],
    "traced": [str(t.shape) for t in traced.inputs],
    "only": compat.is_only_device(),
}))
"""


@pytest.fixture(scope="module")
def two_devices() -> Any:
    return run_script(TWO_DEVICES)


def test_per_replica(two_devices: Any) -> None:
    assert two_devices["parts"] == [[[0, 1], [2, 3], [4, 5]], [[6, 7], [8, 9], [10, 11]]]
    assert not two_devices["only"]


def test_per_replica_spec(two_devices: Any) -> None:
    assert two_devices["traced"] == ["(None, 2)", "(None, 2)"]


GROWN = """
import json
from lowtide.tf import compat

grown = compat.grow_allocator(50 << 20)
import tensorflow as tf

tf.zeros([1])
chunks = compat.allocator_map()
regions, end = [0], None
for address, size, _, _ in chunks:
    regions = regions + [0] if end not in (None, address) else regions
    regions[-1] += size
    end = address + size
print(json.dumps({"grown": grown, "regions": regions}))
"""


def test_grow_allocator() -> None:
    answer = run_script(GROWN)
    assert answer["grown"]
    assert max(answer["regions"]) >= 50 << 20


ADDRESSES = """
import json
import numpy as np
import tensorflow as tf
from lowtide.tf import compat

def requested_at(address):
    return next((asked for start, _, asked, in_use in compat.allocator_map() if in_use and start == address), None)

tensor, variable = tf.zeros([3000]), tf.Variable(tf.ones([700]))
shared = compat.shared_array(tensor)
allocate, free = compat.raw_allocator()
raw = allocate(123_000)
answer = {
    "tensor": requested_at(compat.address_of(tensor)),
    "variable": requested_at(compat.address_of(variable.handle)),
    "shared": [shared.ctypes.data == compat.address_of(tensor), shared.shape],
    "raw": requested_at(raw),
    "refused": allocate(1 << 60),
}
free(raw)
free(None)
answer["freed"] = requested_at(raw)
print(json.dumps(answer))
"""


@pytest.fixture(scope="module")
def addresses() -> Any:
    return run_script(ADDRESSES)


def test_address_of(addresses: Any) -> None:
    assert addresses["tensor"] == 12_000
    assert addresses["variable"] == 2_800
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1)
    assert compat.address_of(table.resource_handle) is None
    assert compat.address_of("not a tensor") is None


def test_shared_array(addresses: Any) -> None:
    assert addresses["shared"] == [True, [3000]]


def test_raw_allocator(addresses: Any) -> None:
    assert addresses["raw"] == 123_000
    assert addresses["refused"] is None
    assert addresses["freed"] is None


HALF_PRODUCT = """
import json
import tensorflow as tf
from lowtide.simulate import simulate
from lowtide.tf import compat, profile
from lowtide.tf.trace import capture_function

weights, sink = tf.cast(tf.random.normal([256, 128]), tf.float16), tf.Variable(0.0)

@tf.function
def product(x):
    sink.assign(1.0)
    return tf.matmul(x, weights)

x = tf.cast(tf.random.normal([512, 256]), tf.float16)
product(x)
events = profile.memory_events(lambda: product(x))
taken = sum(e.requested for e in events if e.temporary and e.requested > 4096)
timeline = simulate(capture_function(product, (x,), {}).program, 512)
print(json.dumps([compat.onednn_computes("float16"), taken, timeline.peak - timeline.resident]))
"""


def test_onednn_computes() -> None:
    by_onednn, taken, predicted = run_script(HALF_PRODUCT)
    floats = 4 * (512 * 256 + 256 * 128 + 512 * 128)
    assert taken == (0 if by_onednn else floats)
    assert predicted >= taken + 2 * 512 * 128 - 256, "but for the scalar that the step replaces"


def test_every_fact_has_a_test_that_bears_its_name() -> None:
    facts = [name for name, value in vars(compat).items() if getattr(value, "__module__", "") == compat.__name__]
    tests = " ".join(name for name in globals() if name.startswith("test_"))
    missing = [name for name in facts if not name.startswith("_") and f"test_{name}" not in tests]
    assert missing == []
