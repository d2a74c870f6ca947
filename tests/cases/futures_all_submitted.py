"""All shards are submitted to the pool at once and the list of futures keeps every decoded shard.
Source: https://github.com/keras-team/keras/issues/13226"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import collections
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS = 40


def decode(shard):
    return np.random.default_rng(shard).random((4000, 1024), dtype="float32")


def shards_ahead(pool, numbers, depth=2):
    waiting = collections.deque()
    for number in numbers:
        waiting.append(pool.submit(decode, number))
        if len(waiting) > depth:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def all_shards(pool, numbers):
    pending = [pool.submit(decode, number) for number in numbers]  # CULPRIT
    for future in pending:
        yield future.result()


model = keras.Sequential([keras.Input((1024,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
start = mem()
with ThreadPoolExecutor(2) as pool:
    for rows in (all_shards if BAD else shards_ahead)(pool, range(STEPS)):
        for at in range(0, len(rows), 1000):
            model.train_on_batch(rows[at:at + 1000], rows[at:at + 1000, :1])

print(json.dumps({"case": "futures_all_submitted", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
