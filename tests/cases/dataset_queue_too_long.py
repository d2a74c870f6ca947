"""A PyDataset with workers is given a queue of hundreds of batches, and the loader runs far ahead of training.
Source: https://github.com/keras-team/keras/issues/11671"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import time

import keras
import numpy as np

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS = 200


class Clips(keras.utils.PyDataset):
    def __len__(self):
        return STEPS

    def __getitem__(self, i):
        return np.full((64, 64, 64, 3), i / STEPS, "float32"), np.zeros((64, 1), "float32")


class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.01)


model = keras.Sequential([keras.Input((64, 64, 3)), keras.layers.AveragePooling2D(8), keras.layers.Flatten(),
                          keras.layers.Dense(1)])
model.compile("sgd", "mse")
start = mem()
queue = 500 if BAD else 4
clips = Clips(workers=2, max_queue_size=queue)  # CULPRIT
model.fit(clips, epochs=1, verbose=0, callbacks=[Slow()])

print(json.dumps({"case": "dataset_queue_too_long", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
