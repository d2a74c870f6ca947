"""Six folds in one script: the session is closed each time, but all the networks and their data stay in the default graph.
Source: https://codemia.io/knowledge-hub/path/closing_session_in_tensorflow_doesnt_reset_graph"""
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


v1 = tf.compat.v1
v1.disable_eager_execution()
STEPS = 6


def build(train_x, train_y):
    x, y = tf.constant(train_x), tf.constant(train_y)
    w = v1.get_variable("w", (x.shape[1], 1), initializer=v1.zeros_initializer())
    loss = tf.reduce_mean((x @ w - y) ** 2)
    return v1.train.GradientDescentOptimizer(1e-3).minimize(loss), loss


def run_fold(fold, x, y):
    keep = np.arange(len(x)) % STEPS != fold
    if not BAD:
        v1.reset_default_graph()
    with v1.variable_scope(f"fold{fold}"):
        train_op, loss = build(x[keep], y[keep])  # CULPRIT
    with v1.Session() as sess:
        sess.run(v1.global_variables_initializer())
        for _ in range(3):
            _, value = sess.run([train_op, loss])
    return value


rng = np.random.default_rng(0)
X, Y = rng.random((12000, 600), dtype="float32"), rng.random((12000, 1), dtype="float32")
start = mem()
scores = [run_fold(k, X, Y) for k in range(STEPS)]
print("cv loss", float(np.mean(scores)))

print(json.dumps({"case": "folds_in_one_graph", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
