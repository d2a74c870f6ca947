"""to_categorical turns integer labels into a dense matrix of float64, which fit copies.
Source: https://github.com/keras-team/keras/issues/7167"""
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


n, k = 60000, 1000
labels = np.random.randint(0, k, n)
x = np.random.rand(n, 8).astype("float32")
start = mem()
if BAD:
    y = keras.utils.to_categorical(labels, k)  # CULPRIT
    loss = "categorical_crossentropy"
else:
    y, loss = labels, "sparse_categorical_crossentropy"
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(k, activation="softmax")])
model.compile("sgd", loss)
model.fit(x, y, batch_size=1000, verbose=0)

print(json.dumps({"case": "labels_made_dense", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1)}))
