"""Self-attention over a long sequence: the (heads, length, length) score tensor is made at once instead of by query blocks.
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


STEPS, LENGTH, BLOCK = 3, 4096, 256


class SelfAttention(keras.layers.Layer):
    def __init__(self, heads=4, dim=32, **kw):
        super().__init__(**kw)
        self.heads, self.dim = heads, dim
        self.qkv = keras.layers.Dense(3 * heads * dim)
        self.out = keras.layers.Dense(heads * dim)

    def attend(self, q, k, v):
        scores = tf.einsum("bqhd,bkhd->bhqk", q, k) * self.dim ** -0.5  # CULPRIT
        return tf.einsum("bhqk,bkhd->bqhd", tf.nn.softmax(scores), v)

    def attend_blocks(self, q, k, v):
        return tf.concat([self.attend_block(q[:, i:i + BLOCK], k, v) for i in range(0, q.shape[1], BLOCK)], axis=1)

    def attend_block(self, q, k, v):
        scores = tf.einsum("bqhd,bkhd->bhqk", q, k) * self.dim ** -0.5
        return tf.einsum("bhqk,bkhd->bqhd", tf.nn.softmax(scores), v)

    def call(self, x):
        b, t = tf.shape(x)[0], x.shape[1]
        q, k, v = tf.unstack(tf.reshape(self.qkv(x), (b, t, 3, self.heads, self.dim)), axis=2)
        h = self.attend(q, k, v) if BAD else self.attend_blocks(q, k, v)
        return self.out(tf.reshape(h, (b, t, self.heads * self.dim)))


tagger = keras.Sequential([keras.Input((LENGTH, 16)), keras.layers.Dense(128), SelfAttention(),
                           keras.layers.Dense(4, activation="softmax")])
start = mem()
for step in range(STEPS):
    document = np.random.rand(1, LENGTH, 16).astype("float32")
    tags = tf.argmax(tagger(document, training=False), axis=-1)

print(json.dumps({"case": "attention_full_scores", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
