"""Every file opened by interleave() has its own shuffle buffer, so the cycle length multiplies the buffer size.
Source: https://github.com/tensorflow/tensorflow/issues/30156"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"

STEPS, FILES, ROWS = 30, 24, 400


def read_file(f):
    rows = tf.data.Dataset.range(ROWS)
    return rows.map(lambda r: tf.fill((64, 64, 3), tf.cast(f * ROWS + r, tf.float32)))


def read_shuffled(f):
    return read_file(f).shuffle(ROWS)  # CULPRIT


files = tf.data.Dataset.range(FILES).shuffle(FILES)
if BAD:
    ds = files.interleave(read_shuffled, cycle_length=FILES)
else:
    ds = files.interleave(read_file, cycle_length=FILES).shuffle(ROWS)
for batch in ds.batch(32).take(STEPS):
    tf.reduce_mean(batch)

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "shuffle_in_each_source", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
