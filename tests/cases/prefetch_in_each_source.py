"""The function of an interleave prefetches, so each of the open sources has a buffer of its own.
Source: https://github.com/tensorflow/tensorflow/issues/30156"""
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


SHARDS, BATCHES = 16, 10


def read(shard):
    ds = tf.data.Dataset.range(BATCHES)
    ds = ds.map(lambda i: tf.random.stateless_uniform((16, 64, 64, 3), tf.stack([shard, i])))
    if BAD:
        ds = ds.prefetch(9)  # CULPRIT
    return ds


def pairs():
    images = tf.data.Dataset.range(SHARDS).interleave(read, cycle_length=SHARDS, block_length=1)
    return images.map(lambda x: (x, tf.reduce_mean(x, axis=(1, 2))))


keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((64, 64, 3)), keras.layers.Conv2D(8, 5, 4, activation="relu"),
                          keras.layers.Flatten(), keras.layers.Dense(3)])
model.compile("sgd", "mse")
start = mem()
model.fit(pairs(), verbose=0)

print(json.dumps({"case": "prefetch_in_each_source", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": SHARDS * BATCHES}))
