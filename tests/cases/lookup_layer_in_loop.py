"""A StringLookup layer is made for every file; its table is never freed.
Source: https://github.com/tensorflow/tensorflow/issues/61866"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import tensorflow as tf

BAD = sys.argv[1] == "bad"

words = [f"word number {i} of the vocabulary" for i in range(60000)]
shared = keras.layers.StringLookup(vocabulary=words)
for file in range(12):
    if BAD:
        lookup = keras.layers.StringLookup(vocabulary=words)  # CULPRIT
    else:
        lookup = shared
    lookup(tf.constant(["word number 1 of the vocabulary"]))

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "lookup_layer_in_loop", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
