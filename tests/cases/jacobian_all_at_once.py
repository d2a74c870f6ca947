"""The Jacobian of a wide output is computed for all rows at once.
Source: https://github.com/tensorflow/tensorflow/issues/34496"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"

w = tf.Variable(tf.random.normal((256, 200)) * 0.05)
x = tf.random.normal((400, 256))
total = 0.0
for step in range(2):
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = tf.reduce_sum(tf.tanh(tf.tanh(x @ w) @ tf.transpose(w)) @ w, 0)
    if BAD:
        rows = tape.jacobian(y, x)  # CULPRIT
    else:
        rows = tape.jacobian(y, x, experimental_use_pfor=False, parallel_iterations=1)[:1]
    total += float(tf.reduce_sum(rows[0]))
    del tape, rows

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "jacobian_all_at_once", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
