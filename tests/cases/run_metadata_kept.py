"""Every traced step's RunMetadata is kept to add up op times at the end; each holds the step stats and the whole graph.
Source: https://github.com/Kismuz/btgym/pull/92"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import collections

import numpy as np
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


v1 = tf.compat.v1
v1.disable_eager_execution()
STEPS = 60


class TimedModel:
    def __init__(self):
        rng = np.random.default_rng(0)
        self.x = v1.placeholder(tf.float32, (None, 500))
        h = self.x
        for _ in range(4):
            h = tf.tanh(h @ tf.constant(rng.standard_normal((500, 500), dtype="float32")))
        self.y = h
        self.sess = v1.Session()
        self.options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE, output_partition_graphs=True)
        self.traces, self.micros = [], collections.Counter()

    def run(self, batch):
        metadata = v1.RunMetadata()
        self.sess.run(self.y, {self.x: batch}, options=self.options, run_metadata=metadata)
        if BAD:
            self.traces.append(metadata)  # CULPRIT
        else:
            self.add(metadata)

    def add(self, metadata):
        for device in metadata.step_stats.dev_stats:
            for node in device.node_stats:
                self.micros[node.node_name] += node.all_end_rel_micros

    def report(self):
        for metadata in self.traces:
            self.add(metadata)
        return self.micros.most_common(3)


model = TimedModel()
batch = np.random.rand(32, 500).astype("float32")
start = mem()
for step in range(STEPS):
    model.run(batch)
model.report()

print(json.dumps({"case": "run_metadata_kept", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
