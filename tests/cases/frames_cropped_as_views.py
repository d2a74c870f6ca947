"""The DQN memory holds small cropped observations, yet it takes as much RAM as the full RGB frames they were cut from.
Source: https://stackoverflow.com/questions/61151105"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


import random
from collections import deque

STEPS = 400


def preprocess(frame):
    """Crop, keep one channel, and take every second pixel."""
    crop = frame[34:194:2, ::2, 0]
    return crop if BAD else crop.copy()  # CULPRIT


class Screen:
    def __init__(self):
        self.rng = np.random.default_rng(3)

    def render(self):
        return self.rng.integers(0, 255, (420, 320, 3), dtype=np.uint8)


class DQN:
    def __init__(self, maxlen):
        self.memory = deque(maxlen=maxlen)
        self.model = keras.Sequential([keras.Input((80, 160, 1)), keras.layers.Conv2D(8, 8, strides=4, activation="relu"),
                                       keras.layers.Flatten(), keras.layers.Dense(4)])
        self.model.compile("sgd", "mse")

    def remember(self, *transition):
        self.memory.append(transition)

    def replay(self, n):
        batch = random.sample(self.memory, n)
        states = np.stack([s for s, _, _ in batch])[..., None].astype("float32") / 255
        target = self.model.predict_on_batch(states)
        for row, (_, a, r) in zip(target, batch):
            row[a] = r
        self.model.train_on_batch(states, target)


random.seed(0)
screen, agent = Screen(), DQN(2000)
for _ in range(16):
    agent.remember(preprocess(screen.render()), 0, 0.0)
agent.replay(16)
start = mem()
for step in range(STEPS):
    agent.remember(preprocess(screen.render()), step % 4, 1.0)
    if step % 20 == 0:
        agent.replay(16)

print(json.dumps({"case": "frames_cropped_as_views", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
