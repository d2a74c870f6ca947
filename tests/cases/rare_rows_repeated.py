"""Rows of the rare class are repeated up-front against imbalance; class weights need no copy."""
import os
import sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np


def transactions(n=50000, d=400):
    rng = np.random.default_rng(1)
    x = rng.random((n, d), dtype="float32")
    y = np.zeros((n, 1), "float32")
    y[: n // 20] = 1.0
    return x, y


def classifier(d):
    m = keras.Sequential([keras.Input((d,)), keras.layers.Dense(16, activation="relu"),
                          keras.layers.Dense(1, activation="sigmoid")])
    m.compile("adam", "binary_crossentropy")
    return m


x, y = transactions()
fraud = np.flatnonzero(y[:, 0] == 1)
weights = None
if sys.argv[1] == "bad":
    x = np.concatenate([x, np.repeat(x[fraud], 38, axis=0)])  # CULPRIT
    y = np.concatenate([y, np.repeat(y[fraud], 38, axis=0)])
else:
    weights = {0: 1.0, 1: 38.0}
model = classifier(x.shape[1])
history = model.fit(x, y, batch_size=500, epochs=2, class_weight=weights, verbose=0)
print(history.history["loss"])
