"""A callback scores the validation set by calling the model on all of it at once instead of in batches.
Source: https://github.com/keras-team/keras/pull/4834"""
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


STEPS = 2
rng = np.random.default_rng(0)
x, y = rng.random((64, 48, 48, 1), dtype="float32"), np.zeros((64, 1), "float32")
x_val = rng.random((800, 48, 48, 1), dtype="float32")


class ValidationScore(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if BAD:
            pred = np.asarray(self.model(x_val, training=False))  # CULPRIT
        else:
            pred = self.model.predict(x_val, batch_size=32, verbose=0)
        self.score = float(pred.mean())


model = keras.Sequential([keras.Input((48, 48, 1)), keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
                          keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
                          keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(1)])
model.compile("sgd", "mse")
start = mem()
model.fit(x, y, batch_size=32, epochs=STEPS, verbose=0, callbacks=[ValidationScore()])


print(json.dumps({"case": "validation_in_one_call", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
