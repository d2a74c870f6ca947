"""itertools.tee gives the training loop and a later statistics pass one stream each: tee stores all batches between them.
Source: https://github.com/kipoi/kipoi/pull/277"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import itertools

import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS = 40
w = tf.Variable(tf.zeros((1024, 1)))


def batches():
    for k in range(STEPS):
        yield tf.random.stateless_normal((2048, 1024), (k, 1))


start = mem()
if BAD:
    train, stats = itertools.tee(batches())  # CULPRIT
else:
    train, stats = batches(), batches()
for x in train:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((x @ w - 1.0) ** 2)
    w.assign_sub(0.01 * tape.gradient(loss, w))
mean = sum(float(tf.reduce_mean(x)) for x in stats) / STEPS

print(json.dumps({"case": "batches_teed_for_statistics", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
