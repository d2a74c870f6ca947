"""compile is called before every fit, each time with a new optimizer and a new train function.
Source: https://github.com/keras-team/keras/issues/9151"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np

BAD = sys.argv[1] == "bad"

x, y = np.random.rand(64, 400).astype("float32"), np.random.rand(64, 1).astype("float32")
model = keras.Sequential([keras.Input((400,)), keras.layers.Dense(1500, activation="relu"),
                          keras.layers.Dense(1500, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
for episode in range(6):
    if BAD:
        model.compile("adam", "mse")  # CULPRIT
    model.fit(x, y, batch_size=32, verbose=0)

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "compile_in_loop", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
