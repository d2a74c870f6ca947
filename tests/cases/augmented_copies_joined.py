"""Augmentation is done beforehand: flipped and noisy copies of the whole set are joined in one big float array.
Source: https://github.com/keras-team/keras/issues/2225"""
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


def flipped(pictures):
    return pictures[:, :, ::-1]


def brighter(pictures, amount):
    return np.clip(pictures + np.float32(amount), 0.0, 1.0)


def enlarge(pictures, labels):
    pictures = np.concatenate([pictures, flipped(pictures), brighter(pictures, 0.1), brighter(pictures, -0.1)])  # CULPRIT
    return pictures, np.tile(labels, 4)


class Augmented(keras.utils.PyDataset):
    def __init__(self, pictures, labels, size=64):
        super().__init__()
        self.pictures, self.labels, self.size = pictures, labels, size

    def __len__(self):
        return 4 * (len(self.pictures) // self.size)

    def __getitem__(self, i):
        i, kind = divmod(i, 4)
        part = self.pictures[i * self.size:(i + 1) * self.size]
        change = (lambda p: p, flipped, lambda p: brighter(p, 0.1), lambda p: brighter(p, -0.1))[kind]
        return change(part), self.labels[i * self.size:(i + 1) * self.size]


pictures = np.random.default_rng(0).random((2048, 80, 80, 3), dtype="float32")
labels = np.arange(len(pictures)) % 3
model = keras.Sequential([keras.Input((80, 80, 3)), keras.layers.Conv2D(4, 5, strides=4, activation="relu"),
                          keras.layers.Flatten(), keras.layers.Dense(3)])
model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
start = mem()
if BAD:
    more_pictures, more_labels = enlarge(pictures, labels)
    for at in range(0, len(more_pictures), 64):
        model.train_on_batch(more_pictures[at:at + 64], more_labels[at:at + 64])
else:
    model.fit(Augmented(pictures, labels), epochs=STEPS, verbose=0)

print(json.dumps({"case": "augmented_copies_joined", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
