"""Each epoch rebuilds a dataset whose numpy_function closes over a large array; none is ever released.
Source: https://github.com/tensorflow/tensorflow/issues/35084"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


def make(epoch):
    table = np.random.rand(400, 5000).astype("float32")

    def pick(i):
        return table[int(i) % 400]

    return tf.data.Dataset.range(50).map(lambda i: tf.numpy_function(pick, [i], tf.float32)).batch(10)


ds = make(0)
start = mem()
for epoch in range(25):
    if BAD:
        ds = make(epoch)  # CULPRIT
    for b in ds:
        tf.reduce_sum(b)

print(json.dumps({"case": "closures_rebuilt_each_epoch", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1)}))
