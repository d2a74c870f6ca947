"""A tf.function is defined inside the function that the loop calls, so every call traces a new graph, and a list keeps them.
Source: https://github.com/lshug/first-order-model-tf/issues/22"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"

w = [tf.Variable(tf.random.normal((64, 64)) * 0.1) for _ in range(30)]
x = tf.random.normal((8, 64))


def body(inputs):
    with tf.GradientTape() as tape:
        h = inputs
        for matrix in w:
            h = tf.tanh(h @ matrix)
        loss = tf.reduce_mean(h * h)
    for variable, gradient in zip(w, tape.gradient(loss, w)):
        variable.assign_sub(0.01 * gradient)
    return loss


compiled = []
shared = tf.function(body)
for step in range(20):
    if BAD:
        animate = tf.function(body)  # CULPRIT
    else:
        animate = shared
    compiled.append(animate)
    animate(x)

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "function_made_in_loop", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
