"""`lowtide.simulate.edges` against the graph that TensorFlow's executor is given, which TensorFlow writes if asked."""

from __future__ import annotations

from itertools import combinations

import pytest

from tests.tf.children import run_script

pytestmark = pytest.mark.tensorflow

SCRIPT = """
    import json, os, re, tempfile
    from dataclasses import replace
    from pathlib import Path
    from random import Random
    folder = tempfile.mkdtemp(prefix="lowtide-graphs-")
    os.environ |= {"TF_DUMP_GRAPH_PREFIX": folder, "TF_DUMP_GRAPH_NAME_FILTER": "*", "TF_DUMP_GRAPH_GROUPS": "main"}
    import keras, tensorflow as tf
    from google.protobuf import text_format
    from lowtide.simulate.edges import Edges
    from lowtide.tf.compat import GraphDef
    from lowtide.tf.trace import capture_model, step_function

    image = keras.Input((16, 16, 3))
    x = keras.layers.Conv2D(8, 3, activation="relu")(image)
    x = keras.layers.Flatten()(keras.layers.MaxPooling2D()(x))
    x = keras.layers.Dense(32, activation="relu")(x)
    model = keras.Model(image, keras.layers.Dense(4)(x))
    model.compile("adam", "mse")
    data = tf.zeros((8, 16, 16, 3)), tf.zeros((8, 4))
    program = capture_model(model, data).program
    open_batch = tf.nest.map_structure(lambda t: tf.TensorSpec([None, *t.shape[1:]], t.dtype), data)
    step_function(model).get_concrete_function(open_batch)(*data)

    def written(moment):
        files = Path(folder).glob(f"*one_step*{moment}.pbtxt")
        graph = text_format.Parse(max(files, key=lambda file: file.stat().st_size).read_text(), GraphDef())
        return [(re.sub("[^a-z0-9]", "_", node.name.lower()), node.op) for node in graph.node]

    names = [re.sub("[^a-z0-9]", "_", op.name.lower()) for op in program.ops]
    listed = [name for _, name in sorted(zip((op.position for op in program.ops), names))]
    real = [name for name, _ in written("before_partition_passes")]
    common = set(listed) & set(real)
    rewritten = written("after_partition_passes")
    replaced = [name for name, kind in rewritten if kind.startswith("_Mkl")]

    place = {name: at for at, name in enumerate(name for name in real if name in common)}
    ops = tuple(replace(op, position=place.get(name, 0)) for op, name in zip(program.ops, names))
    edges = Edges(replace(program, ops=ops))

    def added_last(seed):
        position = edges.listed_in_process(Random(seed))
        return [name for _, name in sorted(zip(position, names))][-len(replaced):]

    print(json.dumps({
        "ops": len(names),
        "listed": [name for name in listed if name in common],
        "real": [name for name in real if name in common],
        "end": [name for name, _ in rewritten[-len(replaced):]],
        "replaced": replaced,
        "seen": any(added_last(seed) == replaced for seed in range(2000)),
    }))
"""


def test_graphs_are_listed_as_grappler_lists_them_and_what_onednn_replaces_comes_last() -> None:
    told = run_script(SCRIPT)
    place = {name: at for at, name in enumerate(told["real"])}
    pairs = list(combinations([place[name] for name in told["listed"]], 2))
    assert sum(one < other for one, other in pairs) > 0.95 * len(pairs)
    assert len(place) > 0.95 * told["ops"]
    assert told["end"] == told["replaced"]
    assert len(told["replaced"]) > 5
    assert told["seen"], "no process of the model's has this order"
