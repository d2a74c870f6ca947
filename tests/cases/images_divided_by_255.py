"""features / 255.0 turns the uint8 picture set into float64, eight times its size, before fit() copies it again.
Source: https://www.mejorcodigo.com/p/50542.html (StackOverflow: why does Colab use so much RAM when I convert jpg files to an array)"""
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
IMG_SIZE = 96


def create_training_data(classes=7, per_class=400):
    rng = np.random.default_rng(0)
    training_data = []
    for label in range(classes):
        for _ in range(per_class):
            training_data.append([rng.integers(0, 255, (IMG_SIZE, IMG_SIZE, 3), dtype="uint8"), label])
    return training_data


training_data = create_training_data()
features = np.empty((len(training_data), IMG_SIZE, IMG_SIZE, 3), "uint8")
labels = np.empty(len(training_data), "int32")
for k, (picture, label) in enumerate(training_data):
    features[k], labels[k] = picture, label
del training_data

start = mem()
layers = [keras.Input((IMG_SIZE, IMG_SIZE, 3))]
if BAD:
    features = features / 255.0  # CULPRIT
else:
    layers.append(keras.layers.Rescaling(1 / 255.0))
model = keras.Sequential(layers + [keras.layers.Conv2D(4, 5, strides=4, activation="relu"), keras.layers.Flatten(),
                                   keras.layers.Dense(7)])
model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
model.fit(features, labels, batch_size=64, epochs=STEPS, verbose=0)

print(json.dumps({"case": "images_divided_by_255", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
