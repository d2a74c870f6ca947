"""Per-clip feature maps are parked in a NumPy object array although only their pooled vectors are used afterwards.
Source: https://github.com/IBM/low-resource-text-classification-framework/pull/1"""
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


STEPS = 40
backbone = keras.Sequential([keras.Input((32, 32, 3)), keras.layers.Conv2D(64, 3, padding="same", activation="relu"),
                             keras.layers.Conv2D(64, 3, padding="same", activation="relu")])
clip = tf.random.normal((32, 32, 32, 3))
backbone(clip)
features = np.empty(STEPS, dtype=object)
start = mem()
for step in range(STEPS):
    maps = backbone(clip, training=False)
    if BAD:
        features[step] = maps  # CULPRIT
    else:
        features[step] = tf.reduce_mean(maps, axis=(0, 1, 2)).numpy()
scores = [float(np.mean(f)) for f in features]

print(json.dumps({"case": "clip_features_in_object_array", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
