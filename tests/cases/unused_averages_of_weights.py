"""use_ema=True makes the optimizer carry and update a copy of all weights that this training loop never reads back.
Source: https://github.com/keras-team/keras/issues/18949"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS = 8
model = keras.Sequential([keras.Input((20,), dtype="int32"), keras.layers.Embedding(600000, 64),
                          keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1)])
loss_fn = keras.losses.MeanSquaredError()
rng = np.random.default_rng(0)
ids = tf.constant(rng.integers(0, 600000, (256, 20)), tf.int32)
y = tf.constant(rng.random((256, 1), dtype="float32"))


def train(steps):
    opt = keras.optimizers.SGD(0.1, use_ema=BAD)  # CULPRIT
    for step in range(steps):
        with tf.GradientTape() as tape:
            loss = loss_fn(y, model(ids, training=True))
        opt.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return float(loss)


start = mem()
train(STEPS)

print(json.dumps({"case": "unused_ema_of_weights", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
