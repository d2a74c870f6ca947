"""A simulation is written with tf.scan and only the last state is read, but scan stacks the state of every step.
Source: https://github.com/tensorflow/tensorflow/issues/4600"""
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


STEPS, TIME, SIDE = 2, 160, 900


def laplacian(u):
    up, down = tf.roll(u, 1, axis=0), tf.roll(u, -1, axis=0)
    left, right = tf.roll(u, 1, axis=1), tf.roll(u, -1, axis=1)
    return up + down + left + right - 4.0 * u


def heat_step(u, dt):
    return u + dt * laplacian(u)


@tf.function
def simulate(u0, dts):
    if BAD:
        states = tf.scan(heat_step, dts, initializer=u0)  # CULPRIT
        return states[-1]
    else:
        return tf.foldl(heat_step, dts, initializer=u0)


dts = tf.fill((TIME,), 0.1)
start = mem()
for step in range(STEPS):
    final = simulate(tf.random.uniform((SIDE, SIDE)), dts)
    print("mean temperature", float(tf.reduce_mean(final)))

print(json.dumps({"case": "heat_scanned_for_last_state", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
