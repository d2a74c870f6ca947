"""predict concatenates the outputs of all batches; only their mean is used.
Source: https://github.com/keras-team/keras/issues/21642"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np

BAD = sys.argv[1] == "bad"

model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(4096)])
x = np.random.rand(24000, 32).astype("float32")
if BAD:
    mean = model.predict(x, batch_size=500, verbose=0).mean()  # CULPRIT
else:
    mean = np.mean([model.predict_on_batch(x[i:i + 500]).mean() for i in range(0, len(x), 500)])

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "predict_collects_outputs", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
