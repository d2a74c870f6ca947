"""cache() without a file keeps every decoded element in RAM.
Source: https://github.com/tensorflow/tensorflow/issues/27128"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"

def decode(i):
    return tf.fill((128, 128, 3), tf.cast(i, tf.float32))


ds = tf.data.Dataset.range(1500).map(decode)
if BAD:
    ds = ds.cache()  # CULPRIT
ds = ds.batch(20)
for epoch in range(2):
    for batch in ds:
        tf.reduce_mean(batch)

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "dataset_cached_in_memory", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
