"""An expression inside session.run adds ops to the graph on every iteration.
Source: https://github.com/tensorflow/tensorflow/issues/9646"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf

BAD = sys.argv[1] == "bad"

v1 = tf.compat.v1
v1.disable_eager_execution()
a = v1.placeholder(tf.float32, (256, 256))
c = a @ a
negative = -c
table = np.random.rand(1000, 500).astype("float32")
feed = np.ones((256, 256), "float32")
with v1.Session() as session:
    for step in range(40):
        if BAD:
            session.run(tf.reduce_sum(c) + tf.reduce_sum(table * step), {a: feed})  # CULPRIT
        else:
            session.run(negative, {a: feed})

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "session_graph_grows", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
