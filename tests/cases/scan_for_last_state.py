"""tf.scan stacks every state though only the last is used: tf.foldl carries one."""
import os
import sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"
w = tf.Variable(tf.random.normal((256, 256)) * 0.05)
u = tf.Variable(tf.random.normal((16, 256)) * 0.2)


def cell(h, x):
    return tf.tanh(h @ w + x @ u)


@tf.function
def encode(seq):
    h0 = tf.zeros((tf.shape(seq)[1], 256))
    if BAD:
        return tf.scan(cell, seq, initializer=h0)[-1]  # CULPRIT
    return tf.foldl(cell, seq, initializer=h0)


def embed_corpus(n):
    for _ in range(n):
        yield encode(tf.random.normal((300, 512, 16)))


mean = tf.zeros(256)
for k, code in enumerate(embed_corpus(6), 1):
    mean += (tf.reduce_mean(code, 0) - mean) / k
print(mean[:3].numpy())
