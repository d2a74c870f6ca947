"""A function with a custom gradient is traced for every value; each trace stays in the registry with its graph.
Source: https://github.com/tensorflow/tensorflow/issues/97697"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"

@tf.custom_gradient
def clipped(x):
    return x, lambda upstream: tf.clip_by_norm(upstream, 1.0)


w = [tf.Variable(tf.random.normal((64, 64)) * 0.1) for _ in range(20)]


@tf.function
def train_step(x, rate):
    with tf.GradientTape() as tape:
        h = x
        for matrix in w:
            h = clipped(tf.tanh(h @ matrix))
        loss = tf.reduce_mean(h * h)
    for variable, gradient in zip(w, tape.gradient(loss, w)):
        variable.assign_sub(rate * gradient)
    return loss


x = tf.random.normal((8, 64))
for step in range(18):
    rate = 0.1 / (1 + step)
    if BAD:
        train_step(x, rate)  # CULPRIT
    else:
        train_step(x, tf.constant(rate))

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "custom_gradient_traced_again", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
