"""tf.stop_gradient blocks the teacher's gradient but not its recording: the tape stores all of its activations.
Source: https://github.com/tensorflow/tensorflow/issues/29870"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS = 3
teacher = [tf.Variable(tf.random.normal((64 if k == 0 else 256, 256)) * 0.09) for k in range(14)]
teacher_head = tf.Variable(tf.random.normal((256, 10)) * 0.1)
student = [tf.Variable(tf.random.normal(s) * 0.1) for s in [(64, 32), (32, 10)]]


@tf.function
def teach(x):
    h = x
    for m in teacher:
        h = tf.nn.relu(h @ m)
    return h @ teacher_head


def distill(x):
    soft = None if BAD else teach(x)
    with tf.GradientTape() as tape:
        if BAD:
            soft = teach(x)  # CULPRIT
        logits = tf.nn.relu(x @ student[0]) @ student[1]
        loss = tf.reduce_mean((logits - tf.stop_gradient(soft)) ** 2)
    for v, g in zip(student, tape.gradient(loss, student)):
        v.assign_sub(0.01 * g)
    return float(loss)


start = mem()
losses = [distill(tf.random.normal((32768, 64))) for _ in range(STEPS)]

print(json.dumps({"case": "teacher_behind_stop_gradient", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
