"""All states of a long simulation are written to a TensorArray and stacked, though only the last one is returned.
Source: https://github.com/tensorflow/tensorflow/issues/47230"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS, ITERS = 2, 50


@tf.function
def simulate(u):
    trace = tf.TensorArray(tf.float32, size=ITERS if BAD else 1, element_shape=(1000, 1000))
    for i in tf.range(ITERS):
        u = u + 0.1 * (tf.roll(u, 1, 0) + tf.roll(u, -1, 0) - 2.0 * u)
        trace = trace.write(i if BAD else 0, u)  # CULPRIT
    return trace.stack()[-1]


start = mem()
for step in range(STEPS):
    final = simulate(tf.random.normal((1000, 1000)))

print(json.dumps({"case": "tensorarray_keeps_states", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
