"""Every fact of `lowtide.tf.compat_watch`, checked on the TensorFlow and Keras that are installed."""

from __future__ import annotations

import gc
import inspect
import sys
from typing import Any

import keras
import pytest
import tensorflow as tf
from tensorflow.core.function import trace_type

from lowtide.tf import compat_watch
from tests.tf.children import run_script

pytestmark = pytest.mark.tensorflow

ALLOCATOR = """
    import json, time
    import tensorflow as tf
    from tensorflow.python.eager import context
    from lowtide.tf import compat_watch

    started = compat_watch.devices_have_started()
    held = tf.ones((1000, 1000))
    allocator = compat_watch.cpu_allocator()
    stats, chunks = allocator.stats(), allocator.chunks()
    told = tf.config.experimental.get_memory_info("CPU:0")
    big = tf.zeros((2000, 2000))
    del big
    high = allocator.stats().peak
    allocator.clear()
    before = time.time_ns()
    profile = compat_watch.start_profile()
    second = compat_watch.start_profile() is None
    made = tf.fill((500, 500), 2.0)
    address = int(made.numpy().__array_interface__["data"][0])
    del made
    events = compat_watch.profile_events(compat_watch.stop_profile(profile))
    result = {
        "started": started,
        "in_use": stats.in_use, "reserved": stats.reserved, "told": told,
        "used": sum(c.size for c in chunks if c.in_use), "all": sum(c.size for c in chunks),
        "requested": [c.requested for c in chunks if c.in_use],
        "high": high, "cleared": allocator.stats().peak, "second": second,
        "fill": [e._asdict() for e in events if e.requested == 1_000_000],
        "last": events[-1].in_use, "now": allocator.stats().in_use,
        "times": [before, events[0].when, events[-1].when, time.time_ns()],
    }
    calls = tf.Variable(0)

    @tf.function
    def counted(x):
        calls.assign_add(1)
        return tf.reduce_sum(tf.reshape(tf.range(1000.0), [10, 100]) @ x)

    def first_call(ready):
        concrete = counted.get_concrete_function(tf.TensorSpec([100, 1 + ready]))
        x = tf.ones([100, 1 + ready])
        readied = ready and compat_watch.make_ready(
            context.context(), concrete.inference_fn.name, [x, *concrete.captured_inputs], 1)
        before = int(calls)
        profile = compat_watch.start_profile()
        concrete(x)
        events = compat_watch.profile_events(compat_watch.stop_profile(profile))
        return {"readied": readied, "before": before, "after": int(calls), "events": len(events)}

    print(json.dumps({**result, "cold": first_call(0), "ready": first_call(1)}))
"""


@pytest.fixture(scope="module")
def answer() -> Any:
    return run_script(ALLOCATOR)


def test_cpu_allocator(answer: Any) -> None:
    """Its numbers are those that TensorFlow gives itself, and the map has every byte."""
    assert answer["in_use"] == answer["used"] == answer["told"]["current"]
    assert answer["reserved"] == answer["all"]
    assert 4_000_000 in answer["requested"]
    assert answer["high"] >= answer["in_use"] + 16_000_000
    assert answer["cleared"] < answer["high"]


def test_start_profile(answer: Any) -> None:
    assert answer["second"]


def test_stop_profile(answer: Any) -> None:
    assert answer["fill"]


def test_profile_events(answer: Any) -> None:
    """An allocation and its free, by the op, at one address, in real time, with the allocator's own count."""
    made, freed = answer["fill"]
    assert (made["frees"], freed["frees"]) == (False, True)
    assert made["address"] == freed["address"]
    assert made["op"] == "Fill"
    assert made["chunk"] >= made["requested"]
    assert made["chunk"] <= made["in_use"] - freed["in_use"] <= made["chunk"] + 1024  # and a scalar in between
    assert answer["last"] == answer["now"]
    assert answer["times"] == sorted(answer["times"])


def test_drop_profile() -> None:
    profile = compat_watch.start_profile()
    assert profile is not None
    compat_watch.drop_profile(profile)
    again = compat_watch.start_profile()
    assert again is not None
    compat_watch.stop_profile(again)


def test_make_ready(answer: Any) -> None:
    """What the first call would do before it runs is done, and nothing has run."""
    assert answer["ready"]["readied"]
    assert answer["ready"]["before"] == answer["cold"]["after"] == 1
    assert answer["ready"]["after"] == 2
    assert 0 < answer["ready"]["events"] < answer["cold"]["events"]


MAKES_VARIABLES = """
import json
import tensorflow as tf
from lowtide.tf import compat_watch

made, traces = [], []

@tf.function
def inner(x):
    if not made:
        made.append(tf.Variable(1.0))
    return made[0] * x

@tf.function
def outer(x):
    traces.append(x)
    return inner(x)

call, readied = compat_watch.CONTEXT_CLASS.call_function, []

def call_function(context, name, inputs, outputs):
    readied.append(compat_watch.make_ready(context, name, inputs, outputs))
    return call(context, name, inputs, outputs)

compat_watch.CONTEXT_CLASS.call_function = call_function
outer(tf.constant(2.0))
print(json.dumps({"readied": readied, "traces": len(traces)}))
"""


def test_make_ready_while_a_function_is_traced() -> None:
    """The variables that `inner` makes are set in the middle of tracing `outer`, which is traced once all the same."""
    answer = run_script(MAKES_VARIABLES)
    assert all(answer["readied"])
    assert len(answer["readied"]) > 1
    assert answer["traces"] == 1


def test_devices_have_started(answer: Any) -> None:
    tf.ones([1])
    assert compat_watch.devices_have_started()
    assert not answer["started"]


def test_every_op() -> None:
    seen = []
    double = tf.function(lambda x: tf.tanh(x) * 2)
    x = tf.ones([3])
    double(x)
    with compat_watch.every_op(lambda kind, outputs, eager: seen.append((kind, len(outputs), eager))):
        y = tf.exp(x)
        double(y)
    tf.exp(x)
    assert ("Exp", 1, True) in seen
    assert sum(kind == "Exp" for kind, _, _ in seen) == 1
    assert double.experimental_get_tracing_count() == 1  # watching does not have it traced again


def calls_of(owner: Any, name: str, action: Any) -> int:
    """How often `owner.name` is called while `action` runs."""
    calls = []
    original = getattr(owner, name)

    def counting(*arguments: Any, **options: Any) -> Any:
        calls.append(name)
        return original(*arguments, **options)

    setattr(owner, name, counting)
    try:
        action()
    finally:
        setattr(owner, name, original)
    return len(calls)


def imported(graph_def: Any) -> None:
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def)
    assert all(op.traceback is None for op in graph.get_operations()), "imported ops tell now who made them"


def test_classes_are_those_that_tensorflow_calls() -> None:
    data = tf.data.Dataset.range(3)
    x = tf.Variable([1.0, 2.0])

    def gradient() -> None:
        with tf.GradientTape() as tape:
            y = x * x
        tape.gradient(y, x)

    traced = tf.function(lambda x: x + 1)
    assert calls_of(compat_watch.ITERATOR_CLASS, "__next__", lambda: list(data)) == 4
    assert calls_of(compat_watch.DATASET_CLASS, "__init__", lambda: data.map(lambda x: x).batch(2)) >= 2
    assert calls_of(compat_watch.TAPE_CLASS, "gradient", gradient) == 1
    assert calls_of(compat_watch.TRACING, compat_watch.CREATE_TRACE, lambda: (traced(1.0), traced(2.0))) == 2
    graph = traced.get_concrete_function(1.0).graph.as_graph_def()
    assert calls_of(compat_watch.IMPORTER, compat_watch.IMPORT_GRAPH, lambda: imported(graph)) == 1
    layer = keras.layers.Dense(1)
    assert calls_of(compat_watch.NAME_SCOPE_CLASS, "__enter__", lambda: layer(tf.ones([1, 1]))) >= 1
    assert calls_of(compat_watch.NEW_VARIABLE_CLASS, "__init__", lambda: tf.Variable(1.0)) == 1
    assert calls_of(compat_watch.NEW_VARIABLE_CLASS, "__init__", lambda: x.assign_add([1.0, 1.0])) == 0
    assert issubclass(compat_watch.NEW_VARIABLE_CLASS, compat_watch.VARIABLE_CLASS)
    assert calls_of(compat_watch.CONTEXT_CLASS, "get_memory_info", memory_info) == 1
    assert isinstance(traced.get_concrete_function(1.0).graph, compat_watch.FUNC_GRAPH_CLASS)
    assert issubclass(compat_watch.FUNC_GRAPH_CLASS, compat_watch.GRAPH_CLASS)
    assert any(thing is x for thing in gc.get_objects() if isinstance(thing, compat_watch.VARIABLE_CLASS))


def memory_info() -> None:
    try:
        tf.config.experimental.get_memory_info("CPU:0")
    except ValueError:
        return  # a CPU that does not count


def test_eager_tensors_are_listed_by_the_garbage_collector() -> None:
    x = tf.ones([7])
    assert type(x) is compat_watch.EAGER_TENSOR_CLASS
    assert any(thing is x for thing in gc.get_objects())


def test_a_trainer_makes_a_function_for_each_kind_of_step() -> None:
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    for name in ("train", "test", "predict"):
        assert callable(getattr(compat_watch.TRAINER_CLASS, f"make_{name}_function"))
        getattr(model, f"make_{name}_function")()
        assert callable(getattr(model, f"{name}_function"))


def test_the_profiler_is_made_where_it_can_be_seen() -> None:
    def profile() -> None:
        tf.profiler.experimental.start("")
        tf.profiler.experimental.stop(save=False)

    assert calls_of(compat_watch.PROFILER, "ProfilerSession", profile) == 1


def test_dataset_of() -> None:
    data = tf.data.Dataset.range(3)
    assert compat_watch.dataset_of(iter(data)) is not None
    assert compat_watch.dataset_of(object()) is None


def test_stages_before() -> None:
    first = tf.data.Dataset.range(3)
    assert compat_watch.stages_before(first.batch(2)) == [first]
    assert compat_watch.stages_before(first) == []


def test_is_recording() -> None:
    with tf.GradientTape() as tape:
        assert compat_watch.is_recording(tape)
    assert not compat_watch.is_recording(tape)


def test_value_of() -> None:
    variable = keras.Variable([1.0, 2.0])
    assert isinstance(compat_watch.value_of(variable), compat_watch.VARIABLE_CLASS)


def test_eager_handle() -> None:
    assert compat_watch.eager_handle(tf.Variable(1.0)) is not None
    with tf.Graph().as_default():
        assert compat_watch.eager_handle(tf.compat.v1.get_variable("v", [2], use_resource=True)) is None


def test_every_function_of_compat_watch_has_a_test_that_bears_its_name() -> None:
    here = sys.modules[__name__]
    functions = {
        name
        for name, value in inspect.getmembers(compat_watch, inspect.isfunction)
        if value.__module__ == compat_watch.__name__ and not name.startswith("_")
    }
    assert functions
    missing = [name for name in functions if not any(test.startswith(f"test_{name}") for test in dir(here))]
    assert not missing


OPENING = """
    import json
    import tensorflow as tf
    from lowtide.tf import compat_watch

    opened, seen = [], []
    for _ in range(2):
        compat_watch.when_devices_open(lambda: opened.append(compat_watch.devices_have_started()))
    seen.append(list(opened))
    if {session}:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            session.run(tf.constant(1.0))
        tf.config.list_logical_devices()
    tf.ones(3)
    tf.ones(3)
    seen.append(list(opened))
    compat_watch.when_devices_open(lambda: opened.append("now"))
    print(json.dumps([*seen, opened]))
"""


@pytest.mark.parametrize("session", [False, True])
def test_when_devices_open_is_told_once(session: bool) -> None:
    assert run_script(OPENING.format(session=session)) == [[], [True, True], [True, True, "now"]]


UNDER_A_TAPE = """
    import json
    import tensorflow as tf
    from lowtide.tf import profile
    from lowtide.tf.compat_watch import without_output_suffix

    table = tf.Variable(tf.ones((300, 8)))
    look_up = tf.function(lambda ids: tf.one_hot(ids, 300, name="picked") @ table)

    def forward():
        with tf.GradientTape():
            return look_up(tf.range(1000))

    forward()
    names = [event.op for event in profile.memory_events(forward) if event.requested >= 4 * 300 * 1000]
    print(json.dumps({"ran": names, "traced": [without_output_suffix(name) for name in names]}))
"""


def test_parts_of_type() -> None:
    kind = trace_type.from_value({"a": tf.ones([2]), "rest": [1, ("two", 3)]})
    parts = compat_watch.parts_of_type(kind)
    assert list(parts) == ["['a']", "['rest']"]
    assert parts["['a']"] == tf.TensorSpec([2])
    inside = compat_watch.parts_of_type(parts["['rest']"])
    assert list(inside) == ["[0]", "[1]"]
    assert list(compat_watch.parts_of_type(inside["[1]"])) == ["[0]", "[1]"]
    assert compat_watch.parts_of_type(inside["[0]"]) == compat_watch.parts_of_type(parts["['a']"]) == {}


def test_bodies_of() -> None:
    @tf.function
    def steps(x: Any) -> Any:
        y = x / 2.0
        for _ in tf.range(3):
            x = x / 3.0 if tf.reduce_sum(x) > 1.0 else x - 1.0
        return x + y

    graph = steps.get_concrete_function(tf.TensorSpec([4])).graph
    kinds = [sorted({op.type for op in body.get_operations()}) for body in compat_watch.bodies_of(graph)]
    assert sum("RealDiv" in found for found in kinds) == 1, "the one in the branch, which is in the loop"
    assert any("Sub" in found for found in kinds)
    assert any("Less" in found for found in kinds), "the loop's condition"


def test_without_output_suffix_what_a_function_returns_under_a_tape_has_its_name() -> None:
    assert run_script(UNDER_A_TAPE) == {"ran": ["picked_0"], "traced": ["picked"]}
