"""gc.disable() for smoother steps: search trees have parent links, so their hidden states are never given back.
Source: https://github.com/facebookresearch/dinov3/issues/150"""
import gc
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS, SIMULATIONS = 14, 10


class Node:
    def __init__(self, hidden, parent=None):
        self.hidden, self.parent = hidden, parent
        self.children, self.value = [], 0.0

    def expand(self, action):
        self.children.append(Node(tf.tanh(self.hidden * 0.9 + 0.1 * action), self))
        return self.children[-1]

    def backup(self, value):
        node = self
        while node is not None:
            node.value += value
            node = node.parent


def search(observation):
    root = node = Node(observation)
    for k in range(SIMULATIONS):
        leaf = node.expand(k % 3)
        leaf.backup(float(tf.reduce_mean(leaf.hidden)))
        node = root if k % 4 == 3 else leaf
    return root.value


gc.freeze()
if BAD:
    gc.disable()  # CULPRIT
start = mem()
values = []
for move in range(STEPS):
    values.append(search(tf.random.normal((512, 2048))))
    if not BAD:
        gc.collect()

print(json.dumps({"case": "collector_switched_off", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
