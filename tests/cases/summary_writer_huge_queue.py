"""A file writer with a giant queue and no flush keeps every logged batch of images of the run in memory.
Source: https://github.com/tensorflow/tensorflow/issues/8265"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import shutil
import tempfile

import keras
import numpy as np
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS = 60
logdir = tempfile.mkdtemp()
if BAD:
    writer = tf.summary.create_file_writer(logdir, max_queue=1000000, flush_millis=3600000)  # CULPRIT
else:
    writer = tf.summary.create_file_writer(logdir, max_queue=2)
gen = keras.Sequential([keras.Input((16,)), keras.layers.Dense(256 * 256 * 3, activation="sigmoid"),
                        keras.layers.Reshape((256, 256, 3))])
gen(tf.zeros((1, 16)))
start = mem()
with writer.as_default():
    for step in range(STEPS):
        fake = gen(tf.random.normal((12, 16)), training=False)
        tf.summary.write("samples", fake, step=step)
print(os.listdir(logdir)[:1])
shutil.rmtree(logdir, ignore_errors=True)

print(json.dumps({"case": "summary_writer_huge_queue", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
