"""tape.gradient is called inside the persistent tape's block, so the whole backward pass is recorded as well.
Source: https://github.com/google-deepmind/acme/issues/77"""
import json
import os
import resource
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"

STEPS = 3
actor = [tf.Variable(tf.random.normal((400, 400)) * 0.05) for _ in range(6)]
critic = [tf.Variable(tf.random.normal((400, 400)) * 0.05) for _ in range(6)]


def mlp(weights, h):
    for w in weights:
        h = tf.tanh(h @ w)
    return h


def update(weights, grads, lr=0.01):
    for w, g in zip(weights, grads):
        w.assign_sub(lr * g)


def learn(obs):
    with tf.GradientTape(persistent=True) as tape:
        action = mlp(actor, obs)
        value = mlp(critic, action)
        actor_loss, critic_loss = -tf.reduce_mean(value), tf.reduce_mean(value ** 2)
        if BAD:
            grads = tape.gradient(actor_loss, actor), tape.gradient(critic_loss, critic)  # CULPRIT
    if not BAD:
        grads = tape.gradient(actor_loss, actor), tape.gradient(critic_loss, critic)
    del tape
    update(actor, grads[0])
    update(critic, grads[1])


for step in range(STEPS):
    learn(tf.random.normal((4096, 400)))

peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"case": "two_gradients_inside_tape", "variant": sys.argv[1], "peak_rss_mb": round(peak, 1)}))
