"""np.array over all sliding windows stores each time step WINDOW times.
Source: https://github.com/dscripka/openWakeWord/issues/167"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import numpy as np
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS = 1
WINDOW, CHANNELS = 96, 24


def recording(length):
    return np.random.default_rng(4).random((length, CHANNELS), dtype="float32")


def windows_of(signal):
    return np.array([signal[i:i + WINDOW] for i in range(len(signal) - WINDOW)])  # CULPRIT


def window_batches(signal, size=500):
    view = np.lib.stride_tricks.sliding_window_view(signal, WINDOW, axis=0)[:-1]
    for at in range(0, len(view), size):
        yield np.ascontiguousarray(view[at:at + size].swapaxes(1, 2))


net = keras.Sequential([keras.Input((WINDOW, CHANNELS)), keras.layers.Conv1D(8, 9, strides=4, activation="relu"),
                        keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(1, activation="sigmoid")])
signal = recording(90000)
net(signal[None, :WINDOW])
start = mem()
false_alarms = 0
if BAD:
    x_val = windows_of(signal)
    for at in range(0, len(x_val), 500):
        false_alarms += int((net.predict_on_batch(x_val[at:at + 500]) > 0.5).sum())
else:
    for part in window_batches(signal):
        false_alarms += int((net.predict_on_batch(part) > 0.5).sum())

print(json.dumps({"case": "sliding_windows_materialised", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
