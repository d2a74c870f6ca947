"""Features of a frozen base are computed inside the tape, which keeps its activations for weights that are never trained.
Source: https://github.com/tensorflow/tensorflow/issues/29870"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"

base = [tf.Variable(tf.random.normal((1024, 1024)) * 0.03) for _ in range(8)]
head = tf.Variable(tf.random.normal((1024, 1)) * 0.03)
x = tf.random.normal((2048, 1024))


def features(h):
    for matrix in base:
        h = tf.nn.sigmoid(h @ matrix)
    return h


for step in range(6):
    if not BAD:
        found = features(x)
    with tf.GradientTape() as tape:
        if BAD:
            found = features(x)  # CULPRIT
        loss = tf.reduce_mean((found @ head) ** 2)
    head.assign_sub(0.1 * tape.gradient(loss, head))

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "frozen_base_inside_tape", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
