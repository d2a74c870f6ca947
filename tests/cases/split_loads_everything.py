"""A helper meant for small arrays splits a streamed image dataset: it lists every sample and stacks them all again.
Source: https://github.com/keras-team/keras/issues/16853"""
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


STEPS, N = 2, 2000


def photos():
    return tf.data.Dataset.range(N).map(lambda i: (tf.fill((96, 96, 3), tf.cast(i % 251, tf.float32)), i % 10))


def train_and_validation(ds, share):
    if BAD:
        return keras.utils.split_dataset(ds, left_size=share)  # CULPRIT
    first = int(share * N)
    return ds.take(first), ds.skip(first)


def main():
    start = mem()
    train, val = train_and_validation(photos(), 0.8)
    model = keras.Sequential([keras.Input((96, 96, 3)), keras.layers.Rescaling(1 / 255),
                              keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(train.batch(32), validation_data=val.batch(32), epochs=STEPS, verbose=0)
    print(json.dumps({"case": "split_loads_everything", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                      "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                      "steps": STEPS}))


main()
