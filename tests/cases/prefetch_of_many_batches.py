"""prefetch counts batches, not examples: 200 batches of 2.4 MB wait in RAM.
Source: https://github.com/tensorflow/tensorflow/pull/26078"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"

ds = tf.data.Dataset.range(20000).map(lambda i: tf.fill((100, 100), tf.cast(i, tf.float32))).batch(60)
if BAD:
    ds = ds.prefetch(200)  # CULPRIT
else:
    ds = ds.prefetch(1)
total = 0.0
for batch in ds.take(160):
    for _ in range(6):
        total += float(tf.reduce_sum(tf.linalg.matmul(batch, batch)))

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "prefetch_of_many_batches", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
