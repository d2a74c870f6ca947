"""All windows of a series are copied into one array, a hundred times the series; batches can be cut from it.
Source: https://github.com/keras-team/keras/issues/5951"""
import json
import resource
import sys

import keras
import numpy as np

BAD = sys.argv[1] == "bad"
LENGTH = 128
series = np.random.default_rng(0).random((20000, 8), dtype="float32")
model = keras.Sequential([keras.Input((LENGTH, 8)), keras.layers.Flatten(), keras.layers.Dense(1)])
model.compile("sgd", "mse")
if BAD:
    x = np.stack([series[i : i + LENGTH] for i in range(len(series) - LENGTH)])  # CULPRIT
    model.fit(x, series[LENGTH:, 0], batch_size=256, verbose=0)
else:
    ds = keras.utils.timeseries_dataset_from_array(series[:-1], series[LENGTH:, 0], LENGTH, batch_size=256)
    model.fit(ds, verbose=0)

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "windows_all_at_once", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
