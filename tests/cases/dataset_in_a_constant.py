"""The whole dataset is turned into one tensor to cut batches from it.
Source: https://github.com/tensorflow/tensorflow/issues/38693"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf

BAD = sys.argv[1] == "bad"

data = np.ones((60000, 1000), "float32")
if BAD:
    held = tf.constant(data)  # CULPRIT
else:
    held = data
for start in range(0, 2560, 256):
    tf.reduce_mean(tf.convert_to_tensor(held[start:start + 256]) * 2.0)

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "dataset_in_a_constant", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
