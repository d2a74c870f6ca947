"""Saliency maps are taken for the complete test set under one tape, so all its activations are alive together.
Source: https://e-learn.cn/topic/4021299 (StackOverflow copy)"""
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


STEPS = 1
images = tf.random.uniform((320, 64, 64, 3))
cnn = keras.Sequential([keras.Input((64, 64, 3)), keras.layers.Conv2D(24, 3, padding="same", activation="relu"),
                        keras.layers.Conv2D(24, 3, padding="same", activation="relu"), keras.layers.MaxPooling2D(4),
                        keras.layers.Flatten(), keras.layers.Dense(10)])


def saliency(batch):
    with tf.GradientTape() as tape:
        tape.watch(batch)
        top = tf.reduce_max(cnn(batch, training=False), axis=-1)
    return tf.reduce_max(tf.abs(tape.gradient(top, batch)), axis=-1)


start = mem()
if BAD:
    maps = saliency(images)  # CULPRIT
else:
    maps = tf.concat([saliency(images[i:i + 20]) for i in range(0, len(images), 20)], axis=0)

print(json.dumps({"case": "saliency_for_all_images_at_once", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
