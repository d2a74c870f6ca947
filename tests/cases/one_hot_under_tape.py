"""Token ids are turned into one-hot rows to multiply the embedding matrix; each batch becomes a tokens x vocabulary tensor.
Source: https://github.com/BVLC/caffe/pull/2032"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"

STEPS, VOCAB, DIM = 3, 20000, 32


class TokenEncoder(tf.Module):
    def __init__(self):
        self.table = tf.Variable(tf.random.normal((VOCAB, DIM)) * 0.05)
        self.out = tf.Variable(tf.random.normal((DIM, 1)))

    def embed(self, ids):
        if BAD:
            return tf.one_hot(ids, VOCAB) @ self.table  # CULPRIT
        return tf.nn.embedding_lookup(self.table, ids)

    @tf.function
    def __call__(self, ids):
        return tf.reduce_mean(self.embed(ids), axis=1) @ self.out


def step(net, ids):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(net(ids) ** 2)
    g = tape.gradient(loss, net.out)
    net.out.assign_sub(0.1 * g)
    return float(loss)


net = TokenEncoder()
history = [step(net, tf.random.uniform((64, 50), 0, VOCAB, tf.int32)) for _ in range(STEPS)]

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "one_hot_under_tape", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
