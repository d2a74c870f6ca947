"""The usual add_n of l2_loss over all variables takes in the item table, so its gradient has every row at every step.
Source: https://github.com/microsoft/CNTK/issues/2850"""
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


STEPS, ITEMS, DIM, LR = 4, 300000, 128, 0.05
table = tf.Variable(tf.zeros((ITEMS, DIM)), name="items")
head = tf.Variable(tf.random.normal((DIM, 1)) * 0.1, name="head")
variables = [table, head]


def step_loss(ids, y):
    rows = tf.gather(table, ids)
    error = tf.reduce_mean((tf.reduce_mean(rows, axis=1) @ head - y) ** 2)
    if BAD:
        penalty = tf.add_n([tf.nn.l2_loss(v) for v in variables])  # CULPRIT
    else:
        penalty = tf.nn.l2_loss(rows) + tf.nn.l2_loss(head)
    return error + 1e-5 * penalty


def apply(v, g):
    if isinstance(g, tf.IndexedSlices):
        v.scatter_sub(tf.IndexedSlices(LR * g.values, g.indices))
    else:
        v.assign_sub(LR * g)


rng = np.random.default_rng(0)
start = mem()
for step in range(STEPS):
    ids = tf.constant(rng.integers(0, ITEMS, (256, 20)))
    y = tf.constant(rng.random((256, 1), dtype="float32"))
    with tf.GradientTape() as tape:
        loss = step_loss(ids, y)
    for v, g in zip(variables, tape.gradient(loss, variables)):
        apply(v, g)

print(json.dumps({"case": "l2_loss_over_all_variables", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
