"""The model is called on the whole validation set at once, and every layer's output is as large.
Source: https://github.com/keras-team/keras/issues/5337"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np
import tensorflow as tf

BAD = sys.argv[1] == "bad"

model = keras.Sequential([keras.Input((64,)), *(keras.layers.Dense(1024, activation="relu") for _ in range(4)),
                          keras.layers.Dense(1)])
x = np.random.rand(16384, 64).astype("float32")
errors = []
if BAD:
    errors.append(float(tf.reduce_mean(model(x))))  # CULPRIT
else:
    for start in range(0, len(x), 512):
        errors.append(float(tf.reduce_mean(model(x[start:start + 512]))))

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "model_called_on_everything", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
