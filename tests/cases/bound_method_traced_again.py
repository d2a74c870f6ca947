"""Each new trainer object gets a trace of its own of the decorated method, and the old objects stay in a list.
Source: https://github.com/tensorflow/tensorflow/issues/62854"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"

class Trainer:
    def __init__(self, scale):
        self.scale = scale

    @tf.function
    def step(self, x):
        h = x
        for matrix in w:
            h = tf.tanh(h @ matrix) * self.scale
        return tf.reduce_mean(h)


w = [tf.Variable(tf.random.normal((64, 64)) * 0.1) for _ in range(60)]
x = tf.random.normal((8, 64))
trainers = [Trainer(1.0)]
for run in range(20):
    if BAD:
        trainers.append(Trainer(1.0 / (1 + run)))
    trainers[-1].step(x)  # CULPRIT

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "bound_method_traced_again", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
