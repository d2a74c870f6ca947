"""An online video model is given the list of frames seen so far; each list length is another input structure and graph.
Source: https://github.com/tensorflow/tensorflow/issues/45984"""
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


class FramePredictor:
    def __init__(self):
        self.w = [tf.Variable(tf.random.normal((64, 64)) * 0.1) for _ in range(25)]

    @tf.function(reduce_retracing=True)
    def learn(self, frames, target):
        with tf.GradientTape() as tape:
            h = tf.reduce_mean(tf.convert_to_tensor(frames), axis=0)
            for m in self.w:
                h = tf.tanh(h @ m)
            loss = tf.reduce_mean((h - target) ** 2)
        for v, g in zip(self.w, tape.gradient(loss, self.w)):
            v.assign_sub(0.01 * g)
        return loss


predictor = FramePredictor()
frames = [tf.random.normal((8, 64))]
start = mem()
for step in range(STEPS):
    nxt = tf.random.normal((8, 64))
    if BAD:
        predictor.learn(frames, nxt)  # CULPRIT
    else:
        predictor.learn(tf.stack(frames), nxt)
    frames.append(nxt)

print(json.dumps({"case": "frames_list_grows", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
