"""Sliding-window inference pads every tile's class map to the full image and holds them all until they are summed.
Source: https://github.com/Project-MONAI/MONAI/issues/1189"""
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


STEPS, SIZE, TILE, CLASSES = 2, 1024, 256, 8
OFFSETS = range(0, SIZE - TILE + 1, 192)
model = keras.Sequential([keras.Input((TILE, TILE, 3)),
                          keras.layers.Conv2D(CLASSES, 3, padding="same", activation="softmax")])


def tile_scores(image, r, c):
    return model(image[None, r:r + TILE, c:c + TILE], training=False)[0]


def placed(image, r, c):
    return tf.pad(tile_scores(image, r, c), [[r, SIZE - TILE - r], [c, SIZE - TILE - c], [0, 0]])


def segment(image):
    if BAD:
        maps = [placed(image, r, c) for r in OFFSETS for c in OFFSETS]  # CULPRIT
        return tf.argmax(tf.add_n(maps), axis=-1).numpy()
    canvas = np.zeros((SIZE, SIZE, CLASSES), "float32")
    for r in OFFSETS:
        for c in OFFSETS:
            canvas[r:r + TILE, c:c + TILE] += tile_scores(image, r, c).numpy()
    return canvas.argmax(axis=-1)


start = mem()
for step in range(STEPS):
    labels = segment(tf.random.uniform((SIZE, SIZE, 3)))

print(json.dumps({"case": "tiles_padded_to_canvas", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
