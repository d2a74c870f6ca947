"""All images are scored in one batch, so each layer's output is there for all of them at once.
Source: https://github.com/keras-team/keras/issues/5337"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np

BAD = sys.argv[1] == "bad"

images = np.random.default_rng(0).random((1200, 48, 48, 3), dtype="float32")
model = keras.Sequential(
    [
        keras.Input((48, 48, 3)),
        keras.layers.Conv2D(24, 3, padding="same", activation="relu"),
        keras.layers.Conv2D(24, 3, padding="same", activation="relu"),
        keras.layers.GlobalAveragePooling2D(),
        keras.layers.Dense(4),
    ]
)
rows = len(images) if BAD else 64  # CULPRIT
best = model.predict(images, batch_size=rows, verbose=0).argmax(1)

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "scored_in_one_batch", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
