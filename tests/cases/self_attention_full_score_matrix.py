"""Self-attention over a long document materialises heads x n x n scores at once; blocks of queries give the same answer.
Source: https://github.com/CyberZHG/keras-multi-head/issues/1"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS = 2
HEADS, N, D, BLOCK = 8, 3200, 32, 200


class LongAttention(keras.layers.Layer):
    def build(self, shape):
        self.qkv = self.add_weight(shape=(shape[-1], 3 * HEADS * D), name="qkv")

    def call(self, x):
        q, k, v = [tf.transpose(tf.reshape(t, (-1, HEADS, D)), (1, 0, 2)) for t in tf.split(x @ self.qkv, 3, axis=-1)]
        if BAD:
            weights = tf.nn.softmax(tf.matmul(q, k, transpose_b=True) / D ** 0.5)  # CULPRIT
            return tf.matmul(weights, v)
        parts = []
        for i in range(0, N, BLOCK):
            w = tf.nn.softmax(tf.matmul(q[:, i:i + BLOCK], k, transpose_b=True) / D ** 0.5)
            parts.append(tf.matmul(w, v))
        return tf.concat(parts, axis=1)


layer = LongAttention()
doc = tf.random.normal((N, 256))
layer.build(doc.shape)
start = mem()
for step in range(STEPS):
    pooled = tf.reduce_mean(layer(doc), axis=1)

print(json.dumps({"case": "self_attention_full_score_matrix", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
