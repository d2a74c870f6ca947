"""A new iterator is opened each epoch and the old ones stay, each with a shuffle buffer of its own.
Source: https://github.com/tensorflow/tensorflow/issues/27414"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


ds = tf.data.Dataset.range(2000).map(lambda i: tf.fill((64, 64), tf.cast(i, tf.float32))).shuffle(500).batch(32)
its = []
start = mem()
for epoch in range(12):
    it = iter(ds)
    tf.reduce_sum(next(it))
    if BAD:
        its.append(it)  # CULPRIT

print(json.dumps({"case": "iterators_kept_open", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1)}))
