"""A trainer remembers the tape of every step on itself; nothing reads it again.
Source: https://github.com/tensorflow/tensorflow/issues/34379"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"

class Trainer:
    def __init__(self):
        self.weights = [tf.Variable(tf.random.normal((600, 600)) * 0.04) for _ in range(3)]
        self.record = []

    def step(self, x):
        with tf.GradientTape(persistent=True) as tape:
            h = x
            for matrix in self.weights:
                h = tf.tanh(h @ matrix)
            loss = tf.reduce_mean(h * h)
        if BAD:
            self.record.append((loss, tape))  # CULPRIT
        for variable, gradient in zip(self.weights, tape.gradient(loss, self.weights)):
            variable.assign_sub(0.01 * gradient)
        del tape


trainer = Trainer()
for _ in range(16):
    trainer.step(tf.random.normal((1024, 600)))

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "tape_kept_on_object", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
