"""All draws of Monte Carlo dropout are stacked for their mean and variance; running sums do."""
import os
import sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np

net = keras.Sequential([keras.Input((64,)), keras.layers.Dense(128, activation="relu"), keras.layers.Dropout(0.3),
                        keras.layers.Dense(1000)])
test = np.random.default_rng(0).random((2000, 64), dtype="float32")


def one_pass(x):
    return np.concatenate([net(x[i:i + 500], training=True).numpy() for i in range(0, len(x), 500)])


def uncertainty_stacked(x, passes):
    draws = np.stack([one_pass(x) for _ in range(passes)])  # CULPRIT
    return draws.mean(0), draws.var(0)


def uncertainty_running(x, passes):
    mean, m2 = np.zeros((len(x), 1000), "float32"), np.zeros((len(x), 1000), "float32")
    for n in range(1, passes + 1):
        d = one_pass(x)
        delta = d - mean
        mean += delta / n
        m2 += delta * (d - mean)
    return mean, m2 / passes


fn = uncertainty_stacked if sys.argv[1] == "bad" else uncertainty_running
mean, var = fn(test, 40)
print(float(mean.mean()), float(var.mean()))
