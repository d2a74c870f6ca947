"""Character sequences are one-hot encoded with np.eye()[ids]: 8 bytes x alphabet for each character.
Source: https://github.com/keras-team/keras/issues/9468"""
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
ALPHABET, WINDOW = 64, 40


def corpus(length):
    return np.random.default_rng(1).integers(0, ALPHABET, length, dtype="int32")


def cut(text, stride=2):
    starts = range(0, len(text) - WINDOW - 1, stride)
    windows = np.stack([text[s:s + WINDOW] for s in starts])
    following = np.array([text[s + WINDOW] for s in starts])
    return windows, following


def vectorise(windows):
    if BAD:
        return np.eye(ALPHABET)[windows]  # CULPRIT
    return windows


def network():
    if BAD:
        first = [keras.Input((WINDOW, ALPHABET))]
    else:
        first = [keras.Input((WINDOW,), dtype="int32"), keras.layers.Lambda(lambda t: tf.one_hot(t, ALPHABET))]
    net = keras.Sequential(first + [keras.layers.Flatten(), keras.layers.Dense(16), keras.layers.Dense(ALPHABET)])
    net.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return net


windows, following = cut(corpus(50000))
net = network()
start = mem()
net.fit(vectorise(windows), following, batch_size=500, epochs=STEPS, verbose=0)

print(json.dumps({"case": "char_one_hot_eye", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
