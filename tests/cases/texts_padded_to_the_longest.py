"""Short texts are padded to the length of the one long text among them.
Source: https://github.com/keras-team/keras/issues/4738"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np

BAD = sys.argv[1] == "bad"

generator = np.random.default_rng(0)
texts = [generator.integers(1, 900, generator.integers(10, 60)) for _ in range(9000)]
texts[11] = generator.integers(1, 900, 7000)
longest = max(map(len, texts)) if BAD else 60  # CULPRIT
x = keras.utils.pad_sequences(texts, maxlen=longest, padding="post", truncating="post")
y = np.zeros((len(x), 1), "float32")
model = keras.Sequential(
    [
        keras.Input((longest,), dtype="int32"),
        keras.layers.Embedding(900, 2),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(1),
    ]
)
model.compile("sgd", "mse")
model.fit(x, y, batch_size=100, verbose=0)

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "texts_padded_to_the_longest", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
