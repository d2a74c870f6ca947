"""One InteractiveSession per fold and no close(): each stays on the session stack and owns a copy of the variables.
Source: https://github.com/tensorflow/tensorflow/issues/13202"""
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


STEPS = 10
tf.compat.v1.disable_eager_execution()
x = np.random.rand(64, 500).astype("float32")


def build():
    slot = tf.compat.v1.placeholder(tf.float32, (None, 500))
    h = slot
    for units in (2000, 2000, 1):
        w = tf.compat.v1.Variable(tf.random.normal((int(h.shape[1]), units)) * 0.02, use_resource=True)
        h = tf.tanh(h @ w)
    return slot, tf.reduce_mean(h)


slot, score = build()
init = tf.compat.v1.global_variables_initializer()
start = mem()
for fold in range(STEPS):
    session = tf.compat.v1.InteractiveSession()  # CULPRIT
    session.run(init)
    session.run(score, {slot: x})
    if not BAD:
        session.close()

print(json.dumps({"case": "interactive_sessions_left_open", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
