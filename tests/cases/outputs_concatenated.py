"""Outputs are joined to one array that is copied and grows with every batch.
Source: https://github.com/huggingface/transformers/pull/9746"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(2000)])
history = np.zeros((0, 2000), "float32")
stat = []
start = mem()
for step in range(50):
    out = model(tf.random.normal((256, 32))).numpy()
    if BAD:
        history = np.concatenate([history, out])  # CULPRIT
    else:
        stat.append(out.mean())

print(json.dumps({"case": "outputs_concatenated", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1)}))
