"""The kernel is normalised inside the recurrence, so backprop through the loop stacks one kernel-sized copy an iteration.
Source: https://github.com/tensorflow/tensorflow/issues/27926"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS, ITERS = 3, 100
w = tf.Variable(tf.random.normal((1024, 1024)))


@tf.function
def rollout(h):
    kernel = w / tf.norm(w, axis=0)
    for _ in tf.range(ITERS):
        if BAD:
            h = tf.tanh(h @ (w / tf.norm(w, axis=0)))  # CULPRIT
        else:
            h = tf.tanh(h @ kernel)
    return h


def train(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(rollout(x) ** 2)
    w.assign_sub(0.01 * tape.gradient(loss, w))
    return float(loss)


start = mem()
for step in range(STEPS):
    train(tf.random.normal((32, 1024)))

print(json.dumps({"case": "weight_norm_inside_loop", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
