"""Documents of different length go through a tf.function without a signature: one graph for each length.
Source: https://github.com/tensorflow/tensorflow/issues/38002"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"

w = [tf.Variable(tf.random.normal((64, 64)) * 0.1) for _ in range(20)]


def forward(x):
    with tf.GradientTape() as tape:
        h = x
        for matrix in w:
            h = tf.tanh(h @ matrix)
        loss = tf.reduce_mean(h * h)
    for variable, gradient in zip(w, tape.gradient(loss, w)):
        variable.assign_sub(0.01 * gradient)
    return loss


if BAD:
    train_step = tf.function(forward, reduce_retracing=False)  # CULPRIT
else:
    train_step = tf.function(forward, input_signature=[tf.TensorSpec((None, 64), tf.float32)])
for length in range(10, 32):
    train_step(tf.zeros((length, 64)))

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "retrace_by_shape", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
