"""A new model is built and trained for every fold; on this version a trained model is never given back.
Source: https://github.com/keras-team/keras/issues/17458"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np

BAD = sys.argv[1] == "bad"

x, y = np.random.rand(64, 400).astype("float32"), np.random.rand(64, 1).astype("float32")


def build():
    model = keras.Sequential([keras.Input((400,)), keras.layers.Dense(1200, activation="relu"),
                              keras.layers.Dense(1200, activation="relu"), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model


model = build()
first = model.get_weights()
for fold in range(6):
    if BAD:
        model = build()  # CULPRIT
    else:
        model.set_weights(first)
    model.fit(x, y, batch_size=32, verbose=0)

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "models_trained_in_loop", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
