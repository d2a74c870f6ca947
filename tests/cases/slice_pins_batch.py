"""The first row of every batch is kept for a picture; a slice of dimension 0 keeps the whole batch.
Source: https://github.com/konstmish/prodigy/pull/22"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"

kept = []
for step in range(24):
    batch = tf.random.normal((256, 64, 64, 1))
    if BAD:
        kept.append(batch[0:1])  # CULPRIT
    else:
        kept.append(tf.identity(tf.gather(batch, [0])))
    tf.reduce_mean(batch)

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "slice_pins_batch", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
