"""Predicted embeddings are written as text through tolist(): every float becomes a boxed Python object first.
Source: https://github.com/lanpa/tensorboardX/pull/188"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tempfile

import keras
import numpy as np

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS = 1
model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(256, activation="tanh")])
x = np.random.rand(24000, 32).astype("float32")
start = mem()
for step in range(STEPS):
    vectors = model.predict(x, batch_size=512, verbose=0)
    with tempfile.TemporaryFile("w") as out:
        if BAD:
            rows = vectors.tolist()  # CULPRIT
        else:
            rows = (row.tolist() for row in vectors)
        for row in rows:
            out.write("\t".join(f"{v:.4g}" for v in row[:16]) + "\n")

print(json.dumps({"case": "embeddings_tolist", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
