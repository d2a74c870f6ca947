"""Pairwise distances by broadcasting build an N x N x D tensor, where a product of matrices needs N x N.
Source: https://github.com/SeldonIO/alibi-detect/issues/213"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


def pairwise(a):
    if BAD:
        return tf.reduce_sum((a[:, None, :] - a[None, :, :]) ** 2, axis=-1)  # CULPRIT
    n = tf.reduce_sum(a * a, axis=1)
    return n[:, None] - 2.0 * tf.matmul(a, a, transpose_b=True) + n[None, :]


start = mem()
for step in range(4):
    emb = tf.random.normal((1200, 64))
    tf.reduce_mean(pairwise(emb))

print(json.dumps({"case": "pairwise_by_broadcast", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1)}))
