"""interleave opens 100 sources at once, each with a buffer of its own.
Source: https://github.com/tensorflow/tensorflow/issues/30156"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"

def one_file(i):
    return tf.data.Dataset.range(40).map(lambda j: tf.fill((80, 80, 3), tf.cast(i + j, tf.float32))).shuffle(40)


ds = tf.data.Dataset.range(100)
if BAD:
    ds = ds.interleave(one_file, cycle_length=100, block_length=1)  # CULPRIT
else:
    ds = ds.interleave(one_file, cycle_length=2, block_length=1)
for batch in ds.batch(16).take(20):
    tf.reduce_mean(batch)

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "interleave_of_many_files", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
