"""The gradients of both networks are taken while the persistent tape is still recording, so the backward passes are recorded too.
Source: https://github.com/google-deepmind/acme/issues/77"""
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


STEPS, BATCH, OBS, ACT = 3, 4096, 48, 8


def mlp(n_in, n_out, name):
    layers = [keras.Input((n_in,))] + [keras.layers.Dense(256, activation="tanh") for _ in range(6)]
    return keras.Sequential(layers + [keras.layers.Dense(n_out)], name=name)


class Learner:
    def __init__(self):
        self.policy, self.critic = mlp(OBS, ACT, "policy"), mlp(OBS + ACT, 1, "critic")
        self.policy_opt, self.critic_opt = keras.optimizers.Adam(1e-4), keras.optimizers.Adam(1e-3)

    def losses(self, obs, act, ret):
        q = self.critic(tf.concat([obs, act], 1))
        critic_loss = tf.reduce_mean((q - ret) ** 2)
        policy_loss = -tf.reduce_mean(self.critic(tf.concat([obs, tf.tanh(self.policy(obs))], 1)))
        return critic_loss, policy_loss

    def step(self, obs, act, ret):
        cv, pv = self.critic.trainable_variables, self.policy.trainable_variables
        with tf.GradientTape(persistent=True) as tape:
            critic_loss, policy_loss = self.losses(obs, act, ret)
            if BAD:
                critic_grads, policy_grads = tape.gradient(critic_loss, cv), tape.gradient(policy_loss, pv)  # CULPRIT
        if not BAD:
            critic_grads, policy_grads = tape.gradient(critic_loss, cv), tape.gradient(policy_loss, pv)
        del tape
        self.critic_opt.apply_gradients(zip(critic_grads, cv))
        self.policy_opt.apply_gradients(zip(policy_grads, pv))


learner, rng = Learner(), np.random.default_rng(0)
start = mem()
for step in range(STEPS):
    obs, act = rng.standard_normal((BATCH, OBS), dtype="float32"), rng.standard_normal((BATCH, ACT), dtype="float32")
    learner.step(tf.constant(obs), tf.constant(act), tf.zeros((BATCH, 1)))

print(json.dumps({"case": "wgan_gradient_inside_tape", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
