"""A notebook cell sets floatx to float64 for one check and never back: weights, slots, activations double.
Source: https://github.com/deepchem/deepchem/issues/2265"""
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


STEPS = 2
if BAD:
    keras.config.set_floatx("float64")  # CULPRIT
start = mem()
model = keras.Sequential([keras.Input((512,)), keras.layers.Dense(3000, activation="relu"),
                          keras.layers.Dense(3000, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
x, y = np.random.rand(256, 512), np.zeros((256, 1))
for step in range(STEPS):
    model.fit(x, y, batch_size=128, verbose=0)

print(json.dumps({"case": "floatx_left_at_float64", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
