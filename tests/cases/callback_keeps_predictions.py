"""A callback predicts after every epoch and keeps all the answers.
Source: https://github.com/keras-team/keras/issues/13195"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np

BAD = sys.argv[1] == "bad"

class Watcher(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.answers = []

    def on_epoch_end(self, epoch, logs=None):
        answer = self.model.predict(x, batch_size=1000, verbose=0)
        if BAD:
            self.answers.append(answer)  # CULPRIT
        else:
            self.answers = [answer]


model = keras.Sequential([keras.Input((16,)), keras.layers.Dense(512)])
model.compile("sgd", "mse")
x, y = np.random.rand(4000, 16).astype("float32"), np.zeros((4000, 512), "float32")
model.fit(x, y, batch_size=1000, epochs=20, verbose=0, callbacks=[Watcher()])

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "callback_keeps_predictions", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
