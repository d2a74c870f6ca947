"""num_parallel_calls far above the number of cores has as many decoded elements ready.
Source: https://github.com/tensorflow/tensorflow/issues/32052"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


def load(i):
    return tf.random.normal((600, 600)) + tf.cast(i, tf.float32)


ds = tf.data.Dataset.range(2000).map(load, num_parallel_calls=256 if BAD else 2)  # CULPRIT
start = mem()
import time
for n, e in enumerate(ds.take(60)):
    tf.reduce_sum(e)
    time.sleep(0.02)

print(json.dumps({"case": "parallel_calls_far_too_many", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1)}))
