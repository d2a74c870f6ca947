"""The table of ops against TensorFlow's kernels: an op allocates on the real allocator what the machine says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.tf.children import run_script

pytestmark = pytest.mark.tensorflow

KERNELS = """
import json
from collections import Counter
import tensorflow as tf
from lowtide.simulate.machine import run
from lowtide.tf import profile
from lowtide.tf.rewrite import as_function, ordered_graph
from lowtide.tf.trace import capture_function

ROWS, COLUMNS = 8, 4096  # rows of 16 KiB, aligned
square, sink = tf.random.normal([COLUMNS, 4]), tf.Variable(0.0)
raw = tf.raw_ops

def fresh(x):
    return tf.concat([x, x], 0, name="fresh")  # a buffer of the step's own, two copies of the batch

CASES = {
    "identity": lambda x: tf.identity(fresh(x), name="it"),
    "reshape": lambda x: tf.reshape(fresh(x), [-1, 2], name="it"),
    "squeeze and expand": lambda x: tf.expand_dims(tf.squeeze(fresh(x)[:, None], 1), 0, name="it"),
    "transpose": lambda x: tf.transpose(fresh(x), name="it"),
    "transpose of one": lambda x: tf.transpose(fresh(x)[None], [1, 0, 2], name="it"),
    "slice of rows": lambda x: tf.slice(fresh(x), [2, 0], [3, COLUMNS], name="it"),
    "slice of columns": lambda x: tf.slice(fresh(x), [0, 2], [3, 7], name="it"),
    "rows by index": lambda x: fresh(x)[2:5],
    "one row": lambda x: fresh(x)[3],
    "relu of the only view": lambda x: tf.nn.relu(tf.slice(fresh(x), [2, 0], [2, COLUMNS]), name="it"),
    "relu of the whole as a view": lambda x: tf.nn.relu(tf.reshape(fresh(x), [-1, 2]), name="it"),
    "rows from where the batch says": lambda x: tf.slice(fresh(x), [tf.shape(x)[0], 0], [2, COLUMNS], name="it"),
    "every other row": lambda x: fresh(x)[::2],
    "unaligned rows": lambda x: tf.slice(fresh(x[:, :4095]), [3, 0], [3, 4095], name="it"),
    "split by rows": lambda x: tf.split(fresh(x), 4, axis=0, name="it"),
    "split by columns": lambda x: tf.split(fresh(x), 4, axis=1, name="it"),
    "sum": lambda x: tf.reduce_sum(fresh(x), 1, name="it"),
    "sum over one": lambda x: tf.reduce_sum(fresh(x)[:, None], 1, name="it"),
    "cast": lambda x: tf.cast(fresh(x), tf.float64, name="it"),
    "relu in place": lambda x: tf.nn.relu(fresh(x), name="it"),
    "relu beside": lambda x: (lambda f: (tf.nn.relu(f, name="it"), tf.reduce_max(f)))(fresh(x)),
    "add in place": lambda x: tf.add(fresh(x), 1.0, name="it"),
    "add of two": lambda x: raw.AddV2(x=x, y=tf.reverse(x, [0]), name="it"),
    "broadcast": lambda x: raw.AddV2(x=fresh(x), y=x[:1], name="it"),
    "less": lambda x: tf.less(fresh(x), 0.0, name="it"),
    "select": lambda x: tf.where(x > 0, tf.reverse(x, [0]), x, name="it"),
    "add n": lambda x: tf.add_n([tf.reverse(x, [0]), x, x], name="it"),
    "softmax": lambda x: tf.nn.softmax(fresh(x), name="it"),
    "bias": lambda x: tf.nn.bias_add(fresh(x), x[0], name="it"),
    "swish": lambda x: (lambda f: tf.multiply(f, tf.sigmoid(f), name="it"))(fresh(x)),
    "clip": lambda x: tf.clip_by_value(fresh(x), -1.0, 1.0, name="it"),
    "matmul": lambda x: tf.matmul(fresh(x), square, name="it"),
    "tile once": lambda x: tf.tile(fresh(x), [1, 1], name="it"),
    "pad": lambda x: tf.pad(fresh(x), [[1, 0], [0, 0]], name="it"),
    "gather": lambda x: tf.gather(fresh(x), [1, 2], name="it"),
    "one hot": lambda x: tf.one_hot(tf.argmax(fresh(x), 1), 512, name="it"),
    "stack": lambda x: tf.stack([x, x], name="it"),
    "unstack": lambda x: tf.unstack(fresh(x), 2 * ROWS, name="it"),
    "cumsum": lambda x: tf.cumsum(fresh(x), 1, name="it"),
    "zeros like": lambda x: tf.zeros_like(fresh(x) * x[0, 0], name="it"),
    "pad by nothing": lambda x: raw.Pad(input=fresh(x), paddings=[[0, 0], [0, 0]], name="it"),
    "broadcast to itself": lambda x: tf.broadcast_to(fresh(x), [2 * ROWS, COLUMNS], name="it"),
    "broadcast to more": lambda x: tf.broadcast_to(x[:1], [ROWS, COLUMNS], name="it"),
    "reverse": lambda x: tf.reverse(fresh(x), [1], name="it"),
    "roll": lambda x: tf.roll(fresh(x), 3, 1, name="it"),
    "mirror pad": lambda x: tf.pad(fresh(x), [[1, 1], [0, 0]], "REFLECT", name="it"),
    "log softmax": lambda x: tf.nn.log_softmax(fresh(x), name="it"),
    "argmax": lambda x: tf.argmax(fresh(x), 0, name="it"),
    "top k": lambda x: tf.math.top_k(fresh(x), 128, name="it"),
    "rows put into another": lambda x: tf.tensor_scatter_nd_update(fresh(x), [[3]], x[:1], name="it"),
    "rows put beside": lambda x: (
        lambda f: (tf.tensor_scatter_nd_add(f, [[3]], x[:1], name="it"), tf.reduce_max(f))
    )(fresh(x)),
    "conjugate": lambda x: tf.math.real(tf.math.conj(tf.complex(fresh(x), x[0]), name="it")),
    "empty": lambda x: raw.Empty(shape=2 * tf.shape(x), dtype=tf.float32, init=True, name="it"),
    "logical": lambda x: tf.logical_not(fresh(x) > 0, name="it"),
    "squared difference": lambda x: tf.math.squared_difference(fresh(x), 1.0, name="it"),
    "fill": lambda x: tf.fill([tf.shape(x)[0], 512], x[0, 0], name="it"),
    "range": lambda x: tf.range(512 * tf.shape(x)[0], name="it"),
    "sum of all": lambda x: tf.reduce_sum(fresh(x), name="it"),
    "any": lambda x: tf.reduce_any(fresh(x) > 0, 0, name="it"),
    "l2": lambda x: tf.nn.l2_loss(fresh(x), name="it"),
    "segment sum": lambda x: tf.math.unsorted_segment_sum(fresh(x), [0] * 2 * ROWS, 3, name="it"),
    "dynamic stitch": lambda x: tf.dynamic_stitch([list(range(ROWS))], [x], name="it"),
    "scatter": lambda x: tf.scatter_nd([[1], [2]], x[:2], [9, COLUMNS], name="it"),
    "band": lambda x: tf.linalg.band_part(fresh(x), 0, -1, name="it"),
    "einsum": lambda x: tf.einsum("bi,ij->bj", fresh(x), square),
    "uniform": lambda x: tf.random.stateless_uniform(tf.shape(x), [1, 2], name="it"),
    "xent": lambda x: tf.nn.sparse_softmax_cross_entropy_with_logits([0] * 2 * ROWS, fresh(x), name="it"),
    "dense xent": lambda x: tf.nn.softmax_cross_entropy_with_logits(tf.reverse(x, [0]), fresh(x)[:ROWS], name="it"),
    "variable": lambda x: sink.assign_add(tf.reduce_sum(fresh(x))),
    "strided assignment": lambda x: tf.tensor_scatter_nd_update(fresh(x), [[1]], x[:1], name="it"),
}

IMAGE = [16, 16, 16]

def image(x):
    return tf.concat([tf.reshape(x, [-1, *IMAGE]), tf.reshape(x, [-1, *IMAGE])], 0, name="fresh")

def differentiated(compute):
    def both(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = compute(x)
        return tape.gradient(y, x)
    return both

kernel, depthwise = tf.random.normal([3, 3, 16, 8]), tf.random.normal([3, 3, 16, 1])
CASES |= {
    "convolution": lambda x: tf.nn.conv2d(image(x), kernel, 1, "SAME", name="it"),
    "convolution, stride 2": lambda x: tf.nn.conv2d(image(x), kernel, 2, "SAME", name="it"),
    "depthwise": lambda x: tf.nn.depthwise_conv2d(image(x), depthwise, [1, 1, 1, 1], "SAME", name="it"),
    "average pool": lambda x: tf.nn.avg_pool2d(image(x), 2, 2, "SAME", name="it"),
    "resize": lambda x: tf.image.resize(image(x), [32, 32], name="it"),
    "nearest": lambda x: tf.image.resize(image(x), [32, 32], "nearest", name="it"),
    "depth to space": lambda x: tf.nn.depth_to_space(image(x), 2, name="it"),
    "batch matmul": lambda x: tf.matmul(image(x), image(x), name="it"),
    "batch matmul, transposed": lambda x: tf.matmul(image(x), tf.reverse(image(x), [0]), transpose_b=True, name="it"),
    "gradient of tanh": differentiated(lambda x: tf.tanh(fresh(x))),
    "gradient of relu": differentiated(lambda x: tf.nn.relu(fresh(x) * 2.0)),
    "gradient of gelu": differentiated(lambda x: tf.nn.gelu(fresh(x))),
    "gradient of softmax": differentiated(lambda x: tf.nn.softmax(fresh(x)) * x[0]),
    "gradient of a slice": differentiated(lambda x: fresh(x)[:2, 7:]),
    "gradient of a pool": differentiated(lambda x: tf.nn.avg_pool2d(image(x), 2, 2, "SAME")),
    "gradient of max pool": differentiated(lambda x: tf.nn.max_pool2d(image(x), 2, 2, "SAME")),
    "gradient of a convolution": differentiated(lambda x: tf.nn.conv2d(image(x), kernel, 1, "SAME")),
    "gradient of depthwise": differentiated(lambda x: tf.nn.depthwise_conv2d(image(x), depthwise, [1] * 4, "SAME")),
    "gradient of a product": differentiated(lambda x: tf.matmul(fresh(x), square)),
    "gradient of a mean": differentiated(lambda x: tf.reduce_mean(fresh(x) ** 2, 1)),
    "gradient of resize": differentiated(lambda x: tf.image.resize(image(x), [32, 32])),
    "gradient of a norm": differentiated(lambda x: tf.nn.moments(fresh(x), 1)[1]),
}

LARGE = 16_000  # bytes: here, what kernels take for themselves while they run is smaller

def counted(pairs):
    return sorted(Counter((name, size) for name, size in pairs if size >= LARGE).items())

x, answers = tf.random.normal([ROWS, COLUMNS]), {}
for name, compute in CASES.items():
    function = tf.function(lambda x, compute=compute: (sink.assign(1.0), compute(x))[1])
    step = capture_function(function, (x,), {})
    program = step.program
    order = list(range(len(program.ops)))
    call = as_function(step, ordered_graph(step.graph_def, order))
    call(x)
    events = profile.memory_events(lambda: call(x))
    trace = run(program, ROWS, order)[0]
    made = [b for b, allocated in trace.log if allocated and b not in trace.scratch]
    makers = [(program.ops[trace.maker[b][1]].name, trace.bytes[b]) for b in made]
    answers[name] = {
        "real": counted((e.op, e.requested) for e in events if e.requested > 0),
        "ours": counted(makers),
    }
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers() -> Any:
    return run_script(KERNELS)


def test_each_op_allocates_what_its_row_says(answers: Any) -> None:
    different = {name: answer for name, answer in answers.items() if answer["real"] != answer["ours"]}
    assert different == {}
    assert len(answers) > 30
