"""The encoder collects its hidden states in a list that is a default argument, so all calls share one growing list.
Source: https://github.com/getnikola/nikola/pull/1532"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS = 25
w = [tf.random.normal((512, 512)) * 0.05 for _ in range(4)]


def encode(x, states=[] if BAD else None):  # CULPRIT
    states = [] if states is None else states
    for m in w:
        x = tf.nn.relu(x @ m)
        states.append(x)
    return tf.add_n(states[-4:])


x = tf.random.normal((1024, 512))
start = mem()
total = 0.0
for step in range(STEPS):
    total += float(tf.reduce_mean(encode(x)))

print(json.dumps({"case": "hidden_states_default_argument", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
