"""len(dataset) is unknown after filter(), so the number of steps is found by listing every batch, which holds them all.
Source: https://github.com/tensorflow/tensorflow/issues/26966"""
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


def batches():
    ds = tf.data.Dataset.range(16000).filter(lambda i: i % 2 == 0)
    ds = ds.map(lambda i: (tf.fill((64, 64, 3), tf.cast(i % 7, tf.float32)), tf.cast(i % 7, tf.float32)))
    return ds.batch(64)


def number_of_steps(ds):
    return len(list(ds)) if BAD else int(ds.reduce(np.int64(0), lambda n, _: n + 1))  # CULPRIT


def build():
    model = keras.Sequential([keras.Input((64, 64, 3)), keras.layers.GlobalAveragePooling2D(),
                              keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


start = mem()
ds = batches()
steps = number_of_steps(ds)
model = build()
model.fit(ds.repeat(), steps_per_epoch=steps, epochs=STEPS, verbose=0)

print(json.dumps({"case": "steps_counted_with_list", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
