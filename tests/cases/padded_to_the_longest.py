"""Every document of a batch is padded to the one that is far longer; those of like length belong together.
Source: https://github.com/Calamari-OCR/calamari/pull/364"""
import json
import resource
import sys

import numpy as np
import tensorflow as tf

BAD = sys.argv[1] == "bad"
LENGTHS = ([3000] + [30] * 63) * 4


def documents():
    for length in LENGTHS:
        yield np.ones((length, 64), "float32")


ds = tf.data.Dataset.from_generator(documents, output_signature=tf.TensorSpec((None, 64), tf.float32))
if BAD:
    ds = ds.padded_batch(64)  # CULPRIT
else:
    ds = ds.bucket_by_sequence_length(lambda x: tf.shape(x)[0], [100], [64, 1])
for batch in ds:
    tf.reduce_mean(tf.nn.relu(batch))

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "padded_to_the_longest", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
