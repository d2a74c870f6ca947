"""A Python loop in a tf.function is written out: one set of ops for each of 800 turns, and their gradients.
Source: https://github.com/tensorflow/tensorflow/issues/45016"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"

w = tf.Variable(tf.random.normal((32, 32)) * 0.1)


@tf.function
def unrolled(h):
    with tf.GradientTape() as tape:
        if BAD:
            for _ in range(800):  # CULPRIT
                h = tf.tanh(h @ w) * 0.5 + 0.1
        else:
            for _ in tf.range(800):
                h = tf.tanh(h @ w) * 0.5 + 0.1
        loss = tf.reduce_mean(h)
    return tape.gradient(loss, w)


for step in range(2):
    unrolled(tf.zeros((4, 32)))

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "python_loop_unrolled", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
