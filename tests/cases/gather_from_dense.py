"""Rows are gathered from a tensor computed from the table, so its gradient is as large as the table.
Source: https://github.com/tensorflow/tensorflow/issues/38168"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf

BAD = sys.argv[1] == "bad"

table = tf.Variable(tf.zeros((200000, 128)))
ids = tf.constant(np.random.randint(0, 200000, 512))


@tf.function
def train_step():
    with tf.GradientTape() as tape:
        if BAD:
            rows = tf.gather(table * 0.5, ids)  # CULPRIT
        else:
            rows = tf.gather(table, ids) * 0.5
        loss = tf.reduce_mean(rows * rows)
    gradient = tape.gradient(loss, table)
    if isinstance(gradient, tf.IndexedSlices):
        table.scatter_sub(gradient)
    else:
        table.assign_sub(gradient)
    return loss


for step in range(4):
    train_step()

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "gather_from_dense", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
