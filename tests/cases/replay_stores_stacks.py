"""DQN replay memory: every transition keeps its own four-frame stacks, so each frame is stored again and again.
Source: https://github.com/google/dopamine/issues/64"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import collections

import keras
import numpy as np
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS, FRAME, CAPACITY = 9000, (84, 84), 50_000


class Env:
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def step(self, action):
        return self.rng.integers(0, 255, FRAME, dtype="uint8"), float(self.rng.random()), False


class StackReplay:
    def __init__(self):
        self.transitions = collections.deque(maxlen=CAPACITY)

    def add(self, state, action, reward, next_state):
        self.transitions.append((state, action, reward, next_state))  # CULPRIT

    def sample(self, rng, n):
        picked = [self.transitions[i] for i in rng.integers(0, len(self.transitions), n)]
        s, a, r, s2 = zip(*picked)
        return np.stack(s), np.array(a), np.array(r, "float32"), np.stack(s2)


class FrameReplay:
    def __init__(self):
        self.frames, self.meta = collections.deque(maxlen=CAPACITY), collections.deque(maxlen=CAPACITY)

    def add(self, state, action, reward, next_state):
        self.frames.append(next_state[..., -1].copy())
        self.meta.append((action, reward))

    def sample(self, rng, n):
        idx = rng.integers(4, len(self.frames), n)
        stack = lambda i: np.stack([self.frames[j] for j in range(i - 3, i + 1)], axis=-1)
        a, r = zip(*[self.meta[i] for i in idx])
        return np.stack([stack(i - 1) for i in idx]), np.array(a), np.array(r, "float32"), np.stack([stack(i) for i in idx])


q_net = keras.Sequential([keras.Input(FRAME + (4,)), keras.layers.Rescaling(1 / 255), keras.layers.Conv2D(8, 8, 8),
                          keras.layers.ReLU(), keras.layers.Flatten(), keras.layers.Dense(4)])
opt = keras.optimizers.Adam(1e-4)


@tf.function
def learn(s, a, r, s2):
    target = r + 0.99 * tf.reduce_max(q_net(s2), axis=1)
    with tf.GradientTape() as tape:
        q = tf.reduce_sum(q_net(s) * tf.one_hot(a, 4), axis=1)
        loss = tf.reduce_mean((target - q) ** 2)
    opt.apply_gradients(zip(tape.gradient(loss, q_net.trainable_variables), q_net.trainable_variables))
    return loss


env, rng = Env(), np.random.default_rng(1)
replay = StackReplay() if BAD else FrameReplay()
state = np.zeros(FRAME + (4,), "uint8")
start = mem()
for step in range(STEPS):
    action = int(rng.integers(4))
    frame, reward, done = env.step(action)
    next_state = np.concatenate([state[..., 1:], frame[..., None]], axis=-1)
    replay.add(state, action, reward, next_state)
    state = next_state
    if step > 100 and step % 20 == 0:
        learn(*replay.sample(rng, 32))

print(json.dumps({"case": "replay_stores_stacks", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
