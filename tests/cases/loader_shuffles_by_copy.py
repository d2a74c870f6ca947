"""A loader shuffles its arrays after each epoch: old and new are there at once. An order of indices does."""
import os
import sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np

MODE = sys.argv[1]


class Loader(keras.utils.PyDataset):
    def __init__(self, x, y, bs):
        super().__init__()
        self.x, self.y, self.bs = x, y, bs
        self.order = np.arange(len(x))

    def __len__(self):
        return len(self.x) // self.bs

    def __getitem__(self, k):
        take = slice(k * self.bs, (k + 1) * self.bs)
        if MODE == "bad":
            return self.x[take], self.y[take]
        idx = self.order[take]
        return self.x[idx], self.y[idx]

    def on_epoch_end(self):
        perm = np.random.permutation(len(self.y))
        if MODE == "bad":
            self.x, self.y = self.x[perm], self.y[perm]  # CULPRIT
        else:
            self.order = perm


def main():
    rng = np.random.default_rng(0)
    loader = Loader(rng.random((60000, 900), dtype="float32"), rng.random((60000, 1), dtype="float32"), 250)
    inp = keras.Input((900,))
    out = keras.layers.Dense(1)(keras.layers.Dense(24, activation="relu")(inp))
    m = keras.Model(inp, out)
    m.compile("sgd", "mse")
    m.fit(loader, epochs=3, verbose=0)


main()
