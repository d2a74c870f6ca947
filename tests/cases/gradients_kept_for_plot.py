"""The gradients of every step are kept as tensors to plot their norms at the end.
Source: https://github.com/tensorflow/tensorflow/issues/21584"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"

w = [tf.Variable(tf.random.normal((1000, 1000)) * 0.03) for _ in range(3)]
x = tf.random.normal((32, 1000))
history = []
for step in range(16):
    with tf.GradientTape() as tape:
        h = x
        for matrix in w:
            h = tf.nn.relu(h @ matrix)
        loss = tf.reduce_mean(h * h)
    gradients = tape.gradient(loss, w)
    if BAD:
        history.append(gradients)  # CULPRIT
    else:
        history.append([float(tf.norm(g)) for g in gradients])
    for variable, gradient in zip(w, gradients):
        variable.assign_sub(0.01 * gradient)

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "gradients_kept_for_plot", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
