"""The loss goes into the compiled step as a fresh functools.partial: no two are equal, so every call traces a new graph.
Source: https://github.com/tensorflow/tensorflow/issues/31175"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import functools

import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS = 60
w = [tf.Variable(tf.random.normal((64, 64)) * 0.1) for _ in range(25)]
x = tf.random.normal((8, 64))


def update(h, loss_fn):
    with tf.GradientTape() as tape:
        for m in w:
            h = tf.tanh(h @ m)
        loss = loss_fn(h)
    for v, g in zip(w, tape.gradient(loss, w)):
        v.assign_sub(0.01 * g)
    return loss


def focal(h, gamma):
    return tf.reduce_mean(tf.abs(h) ** gamma)


@tf.function
def train_step(xb, loss_fn):
    return update(xb, loss_fn)


fixed = functools.partial(focal, gamma=2.0)
train_step(x, fixed)
start = mem()
for step in range(STEPS):
    if BAD:
        loss_fn = functools.partial(focal, gamma=2.0)  # CULPRIT
    else:
        loss_fn = fixed
    train_step(x, loss_fn)

print(json.dumps({"case": "loss_passed_as_partial", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
