"""Targets are (N,), predictions (N, 1): the subtraction in the hand-written loss silently makes an N x N matrix.
Source: https://github.com/keras-team/keras/issues/19601"""
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


STEPS = 6


def asymmetric_loss(y_true, y_pred, tau=0.8):
    if BAD:
        err = y_true - y_pred  # CULPRIT
    else:
        err = y_true - tf.squeeze(y_pred, axis=-1)
    return tf.reduce_mean(tf.maximum(tau * err, (tau - 1.0) * err))


def make_model():
    inp = keras.Input((32,))
    h = keras.layers.Dense(64, activation="relu")(inp)
    return keras.Model(inp, keras.layers.Dense(1)(h))


def fit(model, x, y, optimizer):
    @tf.function
    def step(xb, yb):
        with tf.GradientTape() as tape:
            loss = asymmetric_loss(yb, model(xb, training=True))
        grads = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(grads, model.trainable_variables))
        return loss

    return [float(step(x, y)) for _ in range(STEPS)]


rng = np.random.default_rng(1)
x = tf.constant(rng.standard_normal((7000, 32), dtype="float32"))
y = tf.constant(rng.standard_normal(7000, dtype="float32"))
start = mem()
losses = fit(make_model(), x, y, keras.optimizers.Adam(1e-3))

print(json.dumps({"case": "loss_shape_broadcast", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
