"""The compiled step is made anew in the function that trains an epoch.
Source: https://github.com/tensorflow/tensorflow/issues/35100"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import tensorflow as tf

BAD = sys.argv[1] == "bad"

model = keras.Sequential([keras.Input((24,)), *[keras.layers.Dense(24, activation="tanh") for _ in range(16)]])
x = tf.random.normal((3, 16, 24))


def train(batch):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(batch, training=True) ** 2)
    for weight, gradient in zip(model.trainable_variables, tape.gradient(loss, model.trainable_variables), strict=True):
        weight.assign_sub(0.01 * gradient)
    return loss


once = tf.function(train)
once(x[0])


def epoch():
    step = tf.function(train) if BAD else once  # CULPRIT
    for batch in x:
        step(batch)


for _ in range(30):
    epoch()

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "function_made_in_each_epoch", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
