"""The weights are copied after every epoch to find the best ones; all copies are kept.
Source: https://github.com/keras-team/keras/issues/20552"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np

BAD = sys.argv[1] == "bad"

x, y = np.random.rand(256, 500).astype("float32"), np.random.rand(256, 1).astype("float32")
model = keras.Sequential([keras.Input((500,)), keras.layers.Dense(2500, activation="relu"),
                          keras.layers.Dense(1500, activation="relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
snapshots, best = [], None
for epoch in range(12):
    loss = model.fit(x, y, batch_size=64, verbose=0).history["loss"][0]
    weights = [w.copy() for w in model.get_weights()]
    if BAD:
        snapshots.append((loss, weights))  # CULPRIT
    elif best is None or loss < best[0]:
        best = (loss, weights)

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "weights_copied_every_epoch", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
