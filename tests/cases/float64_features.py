"""Features are normalised in float64 and given to predict, which needs float32.
Source: https://github.com/lisiyao21/Bailando/issues/26"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np

BAD = sys.argv[1] == "bad"

raw = np.ones((60000, 600), "uint8")
if BAD:
    features = raw / 255.0  # CULPRIT
else:
    features = raw.astype("float32") / 255.0
model = keras.Sequential([keras.Input((600,)), keras.layers.Dense(4)])
model.predict(features, batch_size=1000, verbose=0)

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "float64_features", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
