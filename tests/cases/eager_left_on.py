"""run_eagerly=True was left in compile: evaluate runs op by op and keeps every activation.
Source: https://github.com/tensorflow/tensorflow/issues/33174"""
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


x, y = np.random.rand(256, 64, 64, 3).astype("float32"), np.zeros((256, 64, 64, 8), "float32")
layers = [keras.layers.Conv2D(8, 3, padding="same", activation="relu") for _ in range(8)]
model = keras.Sequential([keras.Input((64, 64, 3)), *layers])
model.compile("sgd", "mse", run_eagerly=BAD)  # CULPRIT
start = mem()
model.evaluate(x, y, batch_size=256, verbose=0)

print(json.dumps({"case": "eager_left_on", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1)}))
