"""The attack's loss is given as a fresh lambda at each call of the decorated step: TF traces again each time and RAM climbs.
Source: https://github.com/tensorflow/tensorflow/issues/31175"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS = 60


class Classifier(tf.Module):
    def __init__(self, depth=24):
        self.w = [tf.Variable(tf.random.normal((48, 48)) * 0.15) for _ in range(depth)]
        self.head = tf.Variable(tf.random.normal((48, 10)) * 0.15)

    def __call__(self, x):
        for w in self.w:
            x = tf.nn.relu(x @ w) + x
        return x @ self.head


@tf.function
def attack_step(model, loss_fn, x, target, eps):
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = loss_fn(target, model(x))
    return x - eps * tf.sign(tape.gradient(loss, x))


def cross_entropy(target, logits):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(target, logits))


def craft(model, x, target):
    eps = tf.constant(0.01)
    loss_fn = (lambda t, z: cross_entropy(t, z)) if BAD else cross_entropy  # CULPRIT
    return attack_step(model, loss_fn, x, target, eps)


model = Classifier()
images = tf.random.normal((8, 48), seed=0)
target = tf.constant([3] * 8)
start = mem()
for step in range(STEPS):
    images = craft(model, images, target)

print(json.dumps({"case": "loss_passed_as_lambda", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
