"""group_by_window with a window of 5000 spectrograms waits until that many of a key have come.
Source: https://github.com/tensorflow/tensorflow/issues/37969"""
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


STEPS = 40
WINDOW = 5000 if BAD else 32


def spectrogram(i):
    frames = 200 + 100 * (i % 3)
    return tf.fill((frames, 128), tf.cast(i, tf.float32))


def by_length(spectrum):
    return tf.cast(tf.shape(spectrum)[0] // 100, tf.int64)


clips = tf.data.Dataset.range(4000).map(spectrogram)
groups = clips.group_by_window(by_length, lambda key, window: window.batch(32), window_size=WINDOW)  # CULPRIT
start = mem()
for batch in groups.take(STEPS):
    tf.reduce_max(batch)

print(json.dumps({"case": "group_by_window_everything", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
