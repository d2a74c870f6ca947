"""TF1 style: the augmentation ops are built inside the batch loop, so the default graph and session grow forever.
Source: https://github.com/tensorflow/tensorflow/issues/15802"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS = 130
tf1 = tf.compat.v1


def augment(images):
    for k in range(12):
        images = tf.image.adjust_contrast(tf.image.flip_left_right(images), 0.9 + 0.01 * k)
    return tf.reduce_mean(images)


with tf.Graph().as_default():
    images = tf1.placeholder(tf.float32, (8, 32, 32, 3))
    op = augment(images)
    sess = tf1.Session()
    feed = {images: np.ones((8, 32, 32, 3), "float32")}
    sess.run(op, feed)
    start = mem()
    for step in range(STEPS):
        if BAD:
            op = augment(images)  # CULPRIT
        sess.run(op, feed)

print(json.dumps({"case": "session_ops_built_in_loop", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
