"""A file mapped into memory is read whole by from_tensor_slices.
Source: https://github.com/tensorflow/models/issues/3017"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf

BAD = sys.argv[1] == "bad"

import tempfile

path = os.path.join(tempfile.mkdtemp(), "x.npy")
np.lib.format.open_memmap(path, "w+", "float32", (50000, 1000))[:] = 1.0
x = np.load(path, mmap_mode="r")
if BAD:
    ds = tf.data.Dataset.from_tensor_slices(x).batch(256)  # CULPRIT
else:
    ds = tf.data.Dataset.from_generator(lambda: (x[i:i + 256] for i in range(0, len(x), 256)),
                                        output_signature=tf.TensorSpec((None, 1000), tf.float32))
for batch in ds.take(10):
    tf.reduce_mean(batch)
os.unlink(path)

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "memmap_in_from_tensor_slices", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
