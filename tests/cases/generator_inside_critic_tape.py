"""WGAN-GP: fakes for the critic update are generated inside the critic's tape, which then stores the whole generator.
Source: https://github.com/keras-team/keras-io/pull/15"""
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


STEPS, BATCH = 2, 32768


class WGAN:
    def __init__(self):
        self.generator = keras.Sequential([keras.Input((64,))]
                                          + [keras.layers.Dense(256, activation="relu") for _ in range(12)]
                                          + [keras.layers.Dense(32)])
        self.critic = keras.Sequential([keras.Input((32,)), keras.layers.Dense(32, activation="tanh"),
                                        keras.layers.Dense(1)])

    def penalty(self, real, fake):
        mix = real + tf.random.uniform((BATCH, 1)) * (fake - real)
        with tf.GradientTape() as inner:
            inner.watch(mix)
            score = self.critic(mix, training=True)
        slope = tf.norm(inner.gradient(score, mix), axis=1)
        return tf.reduce_mean((slope - 1.0) ** 2)

    def critic_step(self, real):
        z = tf.random.normal((BATCH, 64))
        if not BAD:
            fake = self.generator(z, training=True)
        with tf.GradientTape() as tape:
            if BAD:
                fake = self.generator(z, training=True)  # CULPRIT
            gap = tf.reduce_mean(self.critic(fake, training=True)) - tf.reduce_mean(self.critic(real, training=True))
            loss = gap + 10.0 * self.penalty(real, fake)
        weights = self.critic.trainable_variables
        for v, g in zip(weights, tape.gradient(loss, weights)):
            v.assign(v - 0.001 * g)


gan = WGAN()
start = mem()
for step in range(STEPS):
    gan.critic_step(tf.random.normal((BATCH, 32)))

print(json.dumps({"case": "generator_inside_critic_tape", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
