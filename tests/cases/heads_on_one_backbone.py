"""Trying heads one after another on one backbone's output tensor: the backbone's outbound nodes hold on to every old head.
Source: https://github.com/keras-team/keras/issues/3960"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import gc

import keras
import numpy as np
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS = 8
x = np.random.rand(64, 200).astype("float32")
inputs = keras.Input((200,))
features = keras.layers.Dense(1000, activation="relu")(inputs)
backbone = keras.Model(inputs, features)
cut = backbone.predict(x, verbose=0)
start = mem()
scores = []
for units in range(6000, 6000 + STEPS):
    head = keras.Sequential([keras.layers.Dense(units, activation="relu"), keras.layers.Dense(1)])
    if BAD:
        model = keras.Model(inputs, head(features))  # CULPRIT
        scores.append(float(tf.reduce_mean(model(x))))
        del model
    else:
        scores.append(float(tf.reduce_mean(head(cut))))
    del head
    gc.collect()

print(json.dumps({"case": "heads_on_one_backbone", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
