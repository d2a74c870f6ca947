"""CycleGAN step: one persistent tape is stored on the trainer and still alive, with all activations, while the next step runs.
Source: https://github.com/tensorflow/docs/pull/842"""
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


STEPS = 6


def conv_net(out):
    return keras.Sequential([keras.Input((96, 96, 3)), keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
                             keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
                             keras.layers.Conv2D(out, 3, padding="same")])


class CycleGAN:
    def __init__(self):
        self.g, self.f, self.dx, self.dy = conv_net(3), conv_net(3), conv_net(1), conv_net(1)
        self.opts = [keras.optimizers.SGD(1e-4) for _ in range(4)]
        self.tape = None

    def train_step(self, real_x, real_y):
        with tf.GradientTape(persistent=True) as tape:
            fake_y, fake_x = self.g(real_x), self.f(real_y)
            cycle = tf.reduce_mean(abs(self.f(fake_y) - real_x)) + tf.reduce_mean(abs(self.g(fake_x) - real_y))
            gen_g = tf.reduce_mean((self.dy(fake_y) - 1) ** 2) + 10 * cycle
            gen_f = tf.reduce_mean((self.dx(fake_x) - 1) ** 2) + 10 * cycle
            disc_x = tf.reduce_mean((self.dx(real_x) - 1) ** 2) + tf.reduce_mean(self.dx(fake_x) ** 2)
            disc_y = tf.reduce_mean((self.dy(real_y) - 1) ** 2) + tf.reduce_mean(self.dy(fake_y) ** 2)
        for net, loss, opt in zip((self.g, self.f, self.dx, self.dy), (gen_g, gen_f, disc_x, disc_y), self.opts):
            opt.apply(tape.gradient(loss, net.trainable_variables), net.trainable_variables)
        if BAD:
            self.tape = tape  # CULPRIT
        del tape
        return float(cycle)


gan = CycleGAN()
start = mem()
for step in range(STEPS):
    gan.train_step(tf.random.normal((8, 96, 96, 3)), tf.random.normal((8, 96, 96, 3)))

print(json.dumps({"case": "persistent_tape_until_next", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
