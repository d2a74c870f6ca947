"""A search keeps what fit() returns for each candidate: a History holds its model, and that its optimizer.
Source: https://github.com/matterport/Mask_RCNN/pull/1507"""
import gc
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


RATES = (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001, 0.00003)
rng = np.random.default_rng(0)
x = rng.standard_normal((800, 128), dtype=np.float32)


def build(rate):
    model = keras.Sequential([keras.Input((128,)), keras.layers.Dense(1400, activation="relu"),
                              keras.layers.Dense(1400, activation="relu"), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(rate), "mse", run_eagerly=True)
    return model


start = mem()
results = {}
for rate in RATES:
    gc.collect()
    model = build(rate)
    history = model.fit(x, x[:, :1], batch_size=200, epochs=2, verbose=0)
    results[rate] = history if BAD else history.history  # CULPRIT

print(json.dumps({"case": "histories_kept", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": len(results)}))
