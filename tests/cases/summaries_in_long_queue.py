"""The writer gets a huge max_queue so that logging never blocks: all image summaries of the run wait in RAM.
Source: https://github.com/tensorflow/tensorflow/issues/8265"""
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


STEPS = 120
logdir = tempfile.mkdtemp()
queue = 100000 if BAD else 5
writer = tf.summary.create_file_writer(logdir, max_queue=queue, flush_millis=3600 * 1000)  # CULPRIT
images = tf.random.stateless_uniform((8, 256, 256, 1), (3, 4))
start = mem()
with writer.as_default():
    for step in range(STEPS):
        tf.summary.write("activations", images + step, step=step)
writer_rss = mem()
shutil.rmtree(logdir)


print(json.dumps({"case": "summaries_in_long_queue", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
