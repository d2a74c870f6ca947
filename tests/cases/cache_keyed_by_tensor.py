"""An unbounded lru_cache on a function of a tensor: identity is the key, so nothing is ever found again or let go.
Source: https://github.com/MoonshotAI/Kimi-Audio/issues/117"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"

from functools import lru_cache


@lru_cache(maxsize=None if BAD else 1)  # CULPRIT
def features(key):
    return tf.tanh(key.deref() * 2.0)


for step in range(30):
    x = tf.random.normal((1024, 1024))
    tf.reduce_mean(features(x.ref()))

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "cache_keyed_by_tensor", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
