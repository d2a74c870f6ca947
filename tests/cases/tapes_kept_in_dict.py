"""Persistent tapes are filed by step for a later look, and with them every activation they recorded.
Source: https://github.com/tensorflow/tensorflow/issues/32276"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"

w = [tf.Variable(tf.random.normal((512, 512)) * 0.04) for _ in range(4)]
x = tf.random.normal((1024, 512))
tapes = {}
for step in range(16):
    with tf.GradientTape(persistent=True) as tape:
        h = x
        for matrix in w:
            h = tf.nn.sigmoid(h @ matrix)
        loss = tf.reduce_mean(h)
    for variable, gradient in zip(w, tape.gradient(loss, w)):
        variable.assign_sub(0.01 * gradient)
    if BAD:
        tapes[step] = tape  # CULPRIT
    else:
        tapes[step] = float(loss)

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "tapes_kept_in_dict", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
