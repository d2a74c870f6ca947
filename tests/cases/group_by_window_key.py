"""Clips are grouped by speaker with a window so large that nearly no group is ever full: all stay buffered.
Source: https://github.com/tensorflow/tensorflow/issues/36877"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS = 30
SPEAKERS = 150
clips = tf.data.Dataset.range(3000).map(lambda i: (i % SPEAKERS, tf.fill((32000,), tf.cast(i, tf.float32))))
window = 4096 if BAD else 4
ds = clips.group_by_window(lambda speaker, clip: speaker, lambda speaker, group: group.batch(4), window)  # CULPRIT
start = mem()
total = 0.0
for speaker, batch in ds.take(STEPS):
    total += float(tf.reduce_mean(batch))

print(json.dumps({"case": "group_by_window_key", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
