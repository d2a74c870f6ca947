"""TF1 inference server: each language gets its own session, and the sessions of languages no longer served stay open.
Source: https://stackoverflow.com/questions/49735217/tensorflow-leaks-1280-bytes-with-each-session-opened-and-closed"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import gc

import numpy as np
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS = 9
v1 = tf.compat.v1
v1.disable_v2_behavior()


def tagging_graph(vocab):
    graph = v1.Graph()
    with graph.as_default():
        ids = v1.placeholder(tf.int32, (None, 16), name="ids")
        emb = v1.get_variable("embedding", (vocab, 128), initializer=v1.zeros_initializer())
        kernel = v1.get_variable("kernel", (128, 20))
        v1.identity(tf.argmax(tf.tensordot(tf.gather(emb, ids), kernel, 1), axis=-1), name="tags")
        v1.global_variables_initializer()
    return graph


def open_model(language):
    graph = tagging_graph(100_000 + 1000 * len(language))
    session = v1.Session(graph=graph)
    with graph.as_default():
        session.run([v.initializer for v in v1.global_variables()])
    return session


class Server:
    def __init__(self):
        self.sessions = {}
        self.current = None

    def switch_to(self, language):
        if BAD:
            self.sessions[language] = self.current = open_model(language)  # CULPRIT
        else:
            if self.current is not None:
                self.current.close()
            self.current = open_model(language)

    def tag(self, ids):
        return self.current.run("tags:0", {"ids:0": ids})


server = Server()
start = mem()
for step in range(STEPS):
    server.switch_to("language-%d" % step)
    gc.collect()
    for _ in range(3):
        server.tag(np.random.randint(0, 100_000, (32, 16)))

print(json.dumps({"case": "sessions_never_closed", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
