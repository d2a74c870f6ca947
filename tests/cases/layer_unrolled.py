"""A recurrent layer over a long window is built with unroll=True: the graph has every time step written out.
Source: https://github.com/keras-team/keras/issues/16485"""
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


STEPS = 16
LENGTH = 160


def detector():
    window = keras.Input((LENGTH, 6))
    h = keras.layers.Dense(16, activation="tanh")(window)
    h = keras.layers.GRU(24, unroll=BAD)(h)  # CULPRIT
    return keras.Model(window, keras.layers.Dense(1)(h))


keras.utils.set_random_seed(0)
model = detector()
model.compile("rmsprop", "mse")
rng = np.random.default_rng(0)
x = rng.standard_normal((STEPS * 16, LENGTH, 6), dtype=np.float32)
start = mem()
model.fit(x, x[:, -1, :1], batch_size=16, verbose=0)

print(json.dumps({"case": "layer_unrolled", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
