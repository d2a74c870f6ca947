"""A from_generator dataset is made anew for every fold; what its closure captured is never released.
Source: https://github.com/tensorflow/tensorflow/issues/57690"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf

BAD = sys.argv[1] == "bad"

def folds(seed):
    data = np.full((2000, 1000), seed, "float32")
    return lambda: (data[i:i + 100] for i in range(0, 2000, 100))


signature = tf.TensorSpec((None, 1000), tf.float32)
current = folds(0)
shared = tf.data.Dataset.from_generator(lambda: current(), output_signature=signature)
for fold in range(20):
    current = folds(fold)
    if BAD:
        ds = tf.data.Dataset.from_generator(current, output_signature=signature)  # CULPRIT
    else:
        ds = shared
    for batch in ds:
        tf.reduce_mean(batch)

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "generator_dataset_in_loop", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
