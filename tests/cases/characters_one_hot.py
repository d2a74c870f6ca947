"""Character codes are expanded with to_categorical for the whole corpus before fit(); an Embedding takes the codes.
Source: https://github.com/keras-team/keras/issues/1002"""
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


STEPS = 1
CHARS, LENGTH, WINDOWS = 80, 40, 15000


def encode(codes):
    if BAD:
        return keras.utils.to_categorical(codes, CHARS)  # CULPRIT
    return codes


def build():
    if BAD:
        first = [keras.Input((LENGTH, CHARS)), keras.layers.Dense(16, use_bias=False)]
    else:
        first = [keras.Input((LENGTH,), dtype="int32"), keras.layers.Embedding(CHARS, 16)]
    model = keras.Sequential([*first, keras.layers.Flatten(), keras.layers.Dense(CHARS, activation="softmax")])
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model


rng = np.random.default_rng(0)
codes = rng.integers(0, CHARS, (WINDOWS, LENGTH), dtype="int32")
following = rng.integers(0, CHARS, WINDOWS)
start = mem()
model = build()
for step in range(STEPS):
    model.fit(encode(codes), following, batch_size=100, verbose=0)

print(json.dumps({"case": "characters_one_hot", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
