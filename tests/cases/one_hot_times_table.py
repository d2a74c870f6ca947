"""An embedding by one_hot @ table makes a matrix of tokens times vocabulary.
Source: https://github.com/keras-team/keras/issues/5287"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


V, D = 20000, 64
table = tf.Variable(tf.random.normal((V, D)) * 0.05)
ids = tf.random.uniform((32, 128), 0, V, tf.int32)


@tf.function
def step(ids):
    with tf.GradientTape() as tape:
        if BAD:
            e = tf.one_hot(ids, V) @ table  # CULPRIT
        else:
            e = tf.gather(table, ids)
        loss = tf.reduce_mean(e ** 2)
    return tf.convert_to_tensor(tape.gradient(loss, table))


start = mem()
for _ in range(3):
    step(ids)

print(json.dumps({"case": "one_hot_times_table", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1)}))
