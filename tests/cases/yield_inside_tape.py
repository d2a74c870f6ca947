"""The step generator yields while its tape is still open, so the caller's whole validation pass is recorded as well.
Source: https://github.com/tensorflow/docs/pull/1391"""
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


STEPS, VAL = 3, 14
w = [tf.Variable(tf.random.normal((256, 256)) * 0.06) for _ in range(4)]
x = tf.random.normal((8192, 256))


def forward(h):
    for m in w:
        h = tf.nn.sigmoid(h @ m)
    return h


def training():
    for step in range(STEPS):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(forward(x))
            if BAD:
                yield step, float(loss)  # CULPRIT
        for v, g in zip(w, tape.gradient(loss, w)):
            v.assign_sub(0.01 * g)
        if not BAD:
            yield step, float(loss)


start = mem()
report = []
for step, loss in training():
    val = np.mean([float(tf.reduce_mean(forward(x + 0.01 * k))) for k in range(VAL)])
    report.append((step, loss, val))

print(json.dumps({"case": "yield_inside_tape", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
