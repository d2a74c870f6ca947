"""Debugger V2 is left on in FULL_TENSOR mode: its circular buffer holds the value of the last thousand tensors.
Source: https://github.com/tensorflow/tensorboard/issues/5518"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import shutil
import tempfile

import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS = 300
dump = tempfile.mkdtemp()
mode = "FULL_TENSOR" if BAD else "CURT_HEALTH"
tf.debugging.experimental.enable_dump_debug_info(dump, tensor_debug_mode=mode, circular_buffer_size=1000)  # CULPRIT
w = tf.random.normal((256, 512))
start = mem()
for step in range(STEPS):
    h = tf.nn.relu(tf.ones((256, 256)) @ w)
tf.debugging.experimental.disable_dump_debug_info()
shutil.rmtree(dump)


print(json.dumps({"case": "debugger_dumps_tensors", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
