"""numpy_function is given a new closure on every step; TensorFlow keeps each closure and what it captured.
Source: https://github.com/tensorflow/tensorflow/issues/51839"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf

BAD = sys.argv[1] == "bad"

def scaled(table):
    return lambda x: x * table[0, 0]


@tf.function
def shared(x, factor):
    return tf.numpy_function(lambda a, b: a * b, [x, factor], tf.float32)


for step in range(20):
    table = np.full((1000, 1500), step, "float32")
    x = tf.ones((8,))
    if BAD:
        tf.function(lambda v: tf.numpy_function(scaled(table), [v], tf.float32))(x)  # CULPRIT
    else:
        shared(x, table[0, 0])

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "py_function_closure_in_loop", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
