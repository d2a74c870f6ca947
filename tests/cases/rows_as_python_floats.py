"""A table is read into lists of Python floats before it becomes an array; rows can go into the array one by one."""
import os
import sys
import tempfile
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np

COLS = 200


def write_csv(path, rows=24000):
    rng = np.random.default_rng(8)
    with open(path, "w") as f:
        for _ in range(rows):
            f.write(",".join(f"{v:.3f}" for v in rng.random(COLS)) + "\n")


def parse(line):
    return [float(v) for v in line.split(",")]


path = os.path.join(tempfile.mkdtemp(), "table.csv")
write_csv(path)
if sys.argv[1] == "bad":
    with open(path) as f:
        rows = [parse(line) for line in f]  # CULPRIT
    table = np.array(rows, dtype="float32")
else:
    with open(path) as f:
        n = sum(1 for _ in f)
    table = np.empty((n, COLS), "float32")
    with open(path) as f:
        for i, line in enumerate(f):
            table[i] = parse(line)
model = keras.Sequential([keras.Input((COLS - 1,)), keras.layers.Dense(32, activation="relu"), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(table[:, 1:], table[:, :1], batch_size=128, epochs=3, verbose=0)
os.remove(path)
