"""The validation pass sits under the training step's GradientTape, so all its activations are recorded until the step ends.
Source: https://github.com/tensorflow/tensorflow/issues/45016"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS = 4
model = keras.Sequential([keras.Input((128,))] + [keras.layers.Dense(1024, activation="tanh") for _ in range(6)]
                         + [keras.layers.Dense(1)])
opt = keras.optimizers.SGD(0.01)
val = [tf.random.normal((1024, 128)) for _ in range(12)]


def mse(x, training):
    return tf.reduce_mean(tf.square(model(x, training=training)))


def validate():
    return sum(float(mse(v, False)) for v in val) / len(val)


def train_step(x):
    with tf.GradientTape() as tape:
        loss = mse(x, True)
        if BAD:
            val_loss = validate()  # CULPRIT
    grads = tape.gradient(loss, model.trainable_variables)
    del tape
    opt.apply_gradients(zip(grads, model.trainable_variables))
    if not BAD:
        val_loss = validate()
    return float(loss), val_loss


start = mem()
for step in range(STEPS):
    train_step(tf.random.normal((256, 128)))

print(json.dumps({"case": "validation_under_tape", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
