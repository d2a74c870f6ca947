"""A replay buffer without a limit keeps every observation, as tensors.
Source: https://github.com/tensorforce/tensorforce/issues/175"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"

from collections import deque


class Agent:
    def __init__(self):
        self.memory = deque() if BAD else deque(maxlen=4)  # CULPRIT

    def remember(self, state, action):
        self.memory.append((state, action))


agent = Agent()
w = tf.Variable(tf.random.normal((512, 4)))
state = tf.random.normal((2048, 512))
for step in range(50):
    action = tf.argmax(state @ w, 1)
    agent.remember(state, action)
    state = tf.roll(state, 1, 0) * 0.99

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "replay_buffer_without_end", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
