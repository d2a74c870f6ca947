"""A snapshot ensemble is loaded for scoring only, yet load_model also restores Adam's two moments for each member.
Source: https://github.com/keras-team/keras/pull/6436"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tempfile

import keras
import numpy as np

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS = 7
x = np.random.rand(64, 300).astype("float32")


def train_snapshots(folder):
    model = keras.Sequential([keras.Input((300,)), keras.layers.Dense(1800, activation="relu"),
                              keras.layers.Dense(1800, activation="relu"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    paths = []
    for k in range(STEPS):
        model.fit(x, x[:, :1], batch_size=32, verbose=0)
        paths.append(os.path.join(folder, f"snapshot{k}.keras"))
        model.save(paths[-1])
    return paths


with tempfile.TemporaryDirectory() as folder:
    paths = train_snapshots(folder)
    keras.utils.clear_session()
    start = mem()
    members = [keras.models.load_model(path, compile=BAD) for path in paths]  # CULPRIT
    votes = sum(np.asarray(member(x, training=False)) for member in members) / STEPS

print(json.dumps({"case": "optimizer_loaded_for_inference", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
