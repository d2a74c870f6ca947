"""shuffle comes after batch, with a buffer that was meant for single elements.
Source: https://github.com/tensorflow/tensorflow/issues/44176"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


ds = tf.data.Dataset.range(40000).map(lambda i: tf.fill((64, 64), tf.cast(i, tf.float32)))
if BAD:
    ds = ds.batch(32).shuffle(1000)  # CULPRIT
else:
    ds = ds.shuffle(200).batch(32)
start = mem()
for batch in ds.take(10):
    tf.reduce_mean(batch)

print(json.dumps({"case": "shuffle_after_batch", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1)}))
