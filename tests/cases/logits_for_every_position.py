"""Text generation projects the hidden states of all positions to the vocabulary and then reads only the last one.
Source: https://github.com/huggingface/transformers/issues/38977"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import tensorflow as tf

BAD = sys.argv[1] == "bad"

STEPS, VOCAB, DIM = 4, 16000, 64


class TinyLM(keras.Model):
    def __init__(self):
        super().__init__()
        self.embed = keras.layers.Embedding(VOCAB, DIM)
        self.mix = keras.layers.Conv1D(DIM, 3, padding="causal", activation="relu")
        self.head = keras.layers.Dense(VOCAB)

    def next_logits(self, ids):
        h = self.mix(self.embed(ids))
        if BAD:
            return self.head(h)[:, -1]  # CULPRIT
        return self.head(h[:, -1])


def generate(lm, prompt, n):
    ids = prompt
    for _ in range(n):
        nxt = tf.argmax(lm.next_logits(ids), axis=-1, output_type=tf.int32)
        ids = tf.concat([ids, nxt[:, None]], axis=1)
    return ids


lm = TinyLM()
prompt = tf.random.uniform((16, 200), 0, VOCAB, tf.int32)
generate(lm, prompt, STEPS)

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "logits_for_every_position", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
