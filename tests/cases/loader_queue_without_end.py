"""A loader thread fills a queue.Queue() without maxsize and runs far ahead of the training loop.
Source: https://github.com/keras-team/keras/issues/3675"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import queue
import threading

import keras
import numpy as np

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS = 150
BATCH = 64
model = keras.Sequential([keras.Input((4096,)), keras.layers.Dense(1024, activation="relu"), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x0 = np.ones((BATCH, 4096), "float32")
model.train_on_batch(x0, np.zeros((BATCH, 1), "float32"))
batches = queue.Queue() if BAD else queue.Queue(maxsize=4)  # CULPRIT


def loader():
    for step in range(STEPS * 4):
        batches.put(np.full((BATCH, 4096), step % 7, "float32"))


start = mem()
thread = threading.Thread(target=loader, daemon=True)
thread.start()
for step in range(STEPS):
    model.train_on_batch(batches.get(), np.zeros((BATCH, 1), "float32"))


print(json.dumps({"case": "loader_queue_without_end", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
