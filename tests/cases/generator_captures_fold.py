"""Each cross-validation fold builds a from_generator dataset over its own array; the captured array is never released.
Source: https://github.com/tensorflow/tensorflow/issues/57690"""
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


STEPS = 10


def train_fold(fold):
    data = np.full((15000, 512), fold, "float32")

    def rows():
        for i in range(0, len(data), 1000):
            yield data[i:i + 1000]

    if BAD:
        ds = tf.data.Dataset.from_generator(rows, output_signature=tf.TensorSpec((None, 512)))  # CULPRIT
    else:
        ds = map(tf.constant, rows())
    return [float(tf.reduce_mean(b)) for b in ds]


start = mem()
for fold in range(STEPS):
    train_fold(fold)


print(json.dumps({"case": "generator_captures_fold", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
