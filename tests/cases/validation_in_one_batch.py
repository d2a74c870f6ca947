"""Training uses small batches, but the validation set is pushed through the network as one single batch.
Source: https://github.com/keras-team/keras/issues/384"""
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
rng = np.random.default_rng(0)
x, y = rng.random((64, 64, 64, 3), dtype="float32"), np.zeros((64, 1), "float32")
x_val, y_val = rng.random((500, 64, 64, 3), dtype="float32"), np.zeros((500, 1), "float32")
model = keras.Sequential([keras.Input((64, 64, 3)), keras.layers.Conv2D(32, 3, activation="relu"),
                          keras.layers.Conv2D(32, 3, activation="relu"), keras.layers.GlobalAveragePooling2D(),
                          keras.layers.Dense(1)])
model.compile("sgd", "mse")
val_batch = len(x_val) if BAD else 16
start = mem()
for epoch in range(STEPS):
    model.fit(x, y, 16, validation_data=(x_val, y_val), validation_batch_size=val_batch, verbose=0)  # CULPRIT

print(json.dumps({"case": "validation_in_one_batch", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
