"""vectorized_map allocates all iterations' temporaries simultaneously; one sample alone is small.
Source: https://github.com/tensorflow/tensorflow/issues/43710"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS = 2
N, P = 400, 300
centers = tf.constant(np.random.default_rng(0).normal(size=(P, 3)).astype("float32"))


def energy(cloud):
    """All pair distances of one point cloud to the centers, then a scalar."""
    d = tf.norm(cloud[:, None, :] - centers[None] + 1e-3, axis=-1)
    return tf.reduce_sum(tf.exp(-d * d))


@tf.function
def batch_energy(clouds):
    if BAD:
        return tf.vectorized_map(energy, clouds)  # CULPRIT
    return tf.map_fn(energy, clouds, parallel_iterations=1)


clouds = tf.random.normal((N, 300, 3), seed=2)
start = mem()
for step in range(STEPS):
    e = batch_energy(clouds)
    clouds = clouds * 0.99
print("mean energy", float(tf.reduce_mean(e)))

print(json.dumps({"case": "energies_vectorized", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
