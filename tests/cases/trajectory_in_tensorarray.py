"""The compiled simulation writes each state into a TensorArray and stacks it, although the caller takes the last one.
Source: https://github.com/tensorflow/tensorflow/issues/15041"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS = 4
TICKS = 60


@tf.function
def trajectory(s, w):
    ta = tf.TensorArray(tf.float32, size=TICKS)
    for t in tf.range(TICKS):
        s = tf.tanh(s @ w)
        ta = ta.write(t, s)  # CULPRIT
    return ta.stack()


@tf.function
def final_state(s, w):
    for _ in tf.range(TICKS):
        s = tf.tanh(s @ w)
    return s


def evolve(s, w):
    return trajectory(s, w)[-1] if BAD else final_state(s, w)


w = tf.random.normal((256, 256)) * 0.06
start = mem()
s = tf.random.normal((2048, 256))
for step in range(STEPS):
    s = evolve(s, w)

print(json.dumps({"case": "trajectory_in_tensorarray", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
