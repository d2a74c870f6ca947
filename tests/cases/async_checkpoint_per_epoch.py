"""A new tf.train.Checkpoint is made every epoch with async saving on: each starts a thread and keeps a copy of the model.
Source: https://www.tensorflow.org/api_docs/python/tf/train/CheckpointOptions"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import shutil
import tempfile

import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS = 10


class Net(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = [tf.Variable(tf.random.normal((1500, 1500)) * 0.02) for _ in range(3)]

    def __call__(self, x):
        for m in self.w:
            x = tf.tanh(x @ m)
        return x


net = Net()
x = tf.random.normal((64, 1500))
options = tf.train.CheckpointOptions(enable_async=True)
checkpoint = tf.train.Checkpoint(net=net)
start = mem()
for epoch in range(STEPS):
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(net(x) ** 2)
        for v, g in zip(net.trainable_variables, tape.gradient(loss, net.trainable_variables)):
            v.assign_sub(0.1 * g)
    if BAD:
        checkpoint = tf.train.Checkpoint(net=net)  # CULPRIT
    folder = tempfile.mkdtemp()
    checkpoint.save(os.path.join(folder, "ckpt"), options=options)
    checkpoint.sync()
    shutil.rmtree(folder)

print(json.dumps({"case": "async_checkpoint_per_epoch", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
