"""Gradient accumulation keeps the gradients of all micro-batches in a list and averages at the end; a running sum does.
Source: https://github.com/meta-pytorch/torchtune/issues/2134"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import tensorflow as tf

BAD = sys.argv[1] == "bad"

STEPS, ACCUM = 2, 16
model = keras.Sequential([keras.Input((256,)), keras.layers.Dense(1500, activation="relu"),
                          keras.layers.Dense(1500, activation="relu"), keras.layers.Dense(1)])
opt = keras.optimizers.SGD(0.01)
tv = model.trainable_variables


def gradients(x):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True) - 1.0) ** 2)
    return tape.gradient(loss, tv)


def accumulate(batches):
    if BAD:
        grads = [gradients(x) for x in batches]  # CULPRIT
        return [sum(g) / ACCUM for g in zip(*grads)]
    total = None
    for x in batches:
        g = gradients(x)
        total = g if total is None else [a + b for a, b in zip(total, g)]
    return [t / ACCUM for t in total]


for step in range(STEPS):
    opt.apply_gradients(zip(accumulate(tf.random.normal((32, 256)) for _ in range(ACCUM)), tv))

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "gradients_collected_in_comprehension", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
