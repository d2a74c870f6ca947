"""The DQN replay memory is a deque without a limit: each transition adds two frame stacks for ever.
Source: https://github.com/ageron/handson-ml/issues/119"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
from collections import deque

import keras
import numpy as np

BAD = sys.argv[1] == "bad"

STEPS, CAPACITY = 9000, 300
SHAPE = (84, 84, 4)


class Replay:
    def __init__(self):
        self.items = deque(maxlen=None if BAD else CAPACITY)  # CULPRIT

    def add(self, *transition):
        self.items.append(transition)

    def sample(self, k):
        picks = [self.items[i] for i in np.random.randint(0, len(self.items), k)]
        return [np.stack(col) for col in zip(*picks)]


def env_step(rng):
    return rng.integers(0, 255, SHAPE, "uint8")


net = keras.Sequential([keras.Input(SHAPE), keras.layers.Conv2D(8, 8, strides=4, activation="relu"),
                        keras.layers.Flatten(), keras.layers.Dense(4)])
net.compile("sgd", "mse")
replay, rng = Replay(), np.random.default_rng(0)
obs = env_step(rng)
for step in range(STEPS):
    nxt = env_step(rng)
    replay.add(obs, step % 4, nxt)
    obs = nxt
    if step % 1000 == 999:
        s, a, s2 = replay.sample(16)
        net.train_on_batch(s / np.float32(255), np.eye(4, dtype="float32")[a])

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "replay_deque_without_end", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
