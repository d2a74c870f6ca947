"""Every call builds a new sub-model to read a hidden layer and predicts with it once; each one traces its own graph.
Source: https://github.com/tensorflow/tensorflow/issues/44711"""
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


STEPS = 40
inputs = keras.Input((32, 32, 3))
h = inputs
for _ in range(10):
    h = keras.layers.Conv2D(8, 3, padding="same", activation="relu")(h)
    h = keras.layers.BatchNormalization()(h)
hidden = keras.layers.GlobalAveragePooling2D(name="hidden")(h)
model = keras.Model(inputs, keras.layers.Dense(10)(hidden))
extractors = {"shared": keras.Model(model.input, hidden)}
x = np.random.rand(8, 32, 32, 3).astype("float32")


def hidden_features(images, key):
    if BAD:
        extractors[key] = keras.Model(model.input, model.get_layer("hidden").output)  # CULPRIT
    else:
        extractors[key] = extractors["shared"]
    return extractors[key].predict(images, verbose=0)


hidden_features(x, "warm-up")
start = mem()
for step in range(STEPS):
    hidden_features(x, step)

print(json.dumps({"case": "extractor_built_per_call", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
