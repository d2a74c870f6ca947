"""The tape is persistent though one gradient is taken from it, so the last batch's activations stay during validation.
Source: https://github.com/tensorflow/tensorflow/issues/41156"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS, EPOCHS, WIDTH = 2, 2, 256
w = [tf.Variable(tf.random.normal((WIDTH, WIDTH)) * 0.06) for _ in range(8)]
x = tf.random.normal((24576, WIDTH))
x_val = tf.random.normal((131072, WIDTH))


def forward(h):
    for m in w:
        h = tf.sin(h @ m)
    return tf.reduce_mean(h * h)


start = mem()
for epoch in range(EPOCHS):
    for step in range(STEPS):
        with tf.GradientTape(persistent=BAD) as tape:  # CULPRIT
            loss = forward(x)
        for v, g in zip(w, tape.gradient(loss, w)):
            v.assign_sub(0.01 * g)
    val_loss = float(forward(x_val))

print(json.dumps({"case": "persistent_tape_alive_in_validation", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS * EPOCHS}))
