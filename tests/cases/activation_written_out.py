"""A hand-written activation inside the tape keeps its intermediates for each block; the fused op keeps one.
Source: https://github.com/tensorflow/tensorflow/issues/45016"""
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
BLOCKS = 8


def elu_by_hand(x):
    pos = tf.maximum(x, 0.0)
    neg = tf.exp(tf.minimum(x, 0.0)) - 1.0
    return tf.where(x > 0, pos, neg)


act = elu_by_hand if BAD else tf.nn.elu
mats = [tf.Variable(tf.random.normal((512, 512)) * 0.04) for _ in range(BLOCKS)]


def tower(x):
    for m in mats:
        x = act(x @ m)  # CULPRIT
    return tf.reduce_mean(x)


def step_on(x):
    with tf.GradientTape() as tape:
        loss = tower(x)
    for m, g in zip(mats, tape.gradient(loss, mats)):
        m.assign_sub(0.01 * g)
    return loss


start = mem()
for step in range(STEPS):
    step_on(tf.random.normal((2500, 512)))

print(json.dumps({"case": "activation_written_out", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
