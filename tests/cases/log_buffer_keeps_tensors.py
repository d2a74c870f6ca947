"""A buffering logging handler stores unformatted records; their args are the activation tensors passed to debug().
Source: https://github.com/Tribler/tribler/pull/8530"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import logging
import logging.handlers

import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS = 50
sink = logging.FileHandler(os.devnull)
log = logging.getLogger("train")
log.setLevel(logging.DEBUG)
log.propagate = False
log.addHandler(logging.handlers.MemoryHandler(10000, flushLevel=logging.ERROR, target=sink))


def traced(fn):
    def wrapper(x):
        out = fn(x)
        if BAD:
            log.debug("%s -> %s", fn.__name__, out)  # CULPRIT
        else:
            log.debug("%s -> %s", fn.__name__, out.shape)
        return out

    return wrapper


w1 = tf.random.normal((64, 1500)) * 0.1
w2 = tf.random.normal((1500, 64)) * 0.1


@traced
def expand(x):
    return tf.nn.relu(x @ w1)


@traced
def contract(x):
    return x @ w2


start = mem()
for step in range(STEPS):
    contract(expand(tf.random.normal((768, 64))))

print(json.dumps({"case": "log_buffer_keeps_tensors", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
