"""The arrays of validation_data are float64, and fit copies them whole.
Source: https://github.com/keras-team/keras/issues/6217"""
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


x, y = np.random.rand(1000, 500).astype("float32"), np.zeros((1000, 1), "float32")
start = mem()
if BAD:
    xv = np.random.rand(60000, 500)  # CULPRIT
else:
    xv = np.random.default_rng(0).random((60000, 500), dtype="float32")
yv = np.zeros((60000, 1), "float32")
model = keras.Sequential([keras.Input((500,)), keras.layers.Dense(8), keras.layers.Dense(1)])
model.compile("sgd", "mse")
model.fit(x, y, validation_data=(xv, yv), batch_size=200, verbose=0)

print(json.dumps({"case": "validation_in_float64", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1)}))
