"""Adversarial training: the PGD attack runs inside the training tape, which then records all of its inner passes.
Source: https://github.com/tensorflow/neural-structured-learning/issues/22"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS, ATTACK = 3, 6
model = keras.Sequential([keras.Input((64, 64, 3)), keras.layers.Conv2D(24, 3, padding="same", activation="softplus"),
                          keras.layers.Conv2D(24, 3, padding="same", activation="softplus"),
                          keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(10)])
loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
x, y = tf.random.uniform((24, 64, 64, 3)), tf.zeros((24,), tf.int32)


def pgd(images):
    adv = images
    for _ in range(ATTACK):
        with tf.GradientTape() as inner:
            inner.watch(adv)
            loss = loss_fn(y, model(adv, training=False))
        adv = tf.clip_by_value(adv + 0.01 * tf.sign(inner.gradient(loss, adv)), 0.0, 1.0)
    return adv


start = mem()
params = model.trainable_variables
for step in range(STEPS):
    if not BAD:
        x_adv = pgd(x)
    with tf.GradientTape() as tape:
        if BAD:
            x_adv = pgd(x)  # CULPRIT
        loss = loss_fn(y, model(x_adv, training=True))
    for v, g in zip(params, tape.gradient(loss, params)):
        v.assign_sub(0.01 * g)

print(json.dumps({"case": "attack_under_training_tape", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
