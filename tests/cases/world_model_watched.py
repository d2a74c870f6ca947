"""Only the policy is trained on the imagined rollout, but the tape also watches the big world model's variables.
Source: https://github.com/kc-ml2/SimpleDreamer/issues/7"""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"


def mem(field="VmRSS"):
    with open("/proc/self/status") as f:
        return next(int(s.split()[1]) for s in f if s.startswith(field)) / 1024


STEPS, HORIZON, ENVS = 2, 16, 8192
policy = [tf.Variable(tf.random.normal((64, 64)) * 0.1), tf.Variable(tf.random.normal((64, 8)) * 0.1)]
world = [tf.Variable(tf.random.normal(s) * 0.06) for s in [(72, 256), (256, 256), (256, 256), (256, 65)]]


def imagine(obs, action):
    h = tf.concat([obs, tf.one_hot(action, 8)], axis=1)
    for m in world:
        h = tf.tanh(h @ m)
    return h[:, :64], h[:, 64]


def policy_gradient(obs):
    loss = 0.0
    with tf.GradientTape(watch_accessed_variables=BAD) as tape:  # CULPRIT
        tape.watch(policy)
        for _ in range(HORIZON):
            logits = tf.tanh(obs @ policy[0]) @ policy[1]
            action = tf.random.categorical(logits, 1)[:, 0]
            nll = tf.nn.sparse_softmax_cross_entropy_with_logits(action, logits)
            obs, reward = imagine(obs, action)
            loss += tf.reduce_mean(nll * reward)
    return tape.gradient(loss, policy)


start = mem()
for step in range(STEPS):
    for v, g in zip(policy, policy_gradient(tf.random.normal((ENVS, 64)))):
        v.assign_sub(0.01 * g)

print(json.dumps({"case": "world_model_watched", "variant": sys.argv[1], "rss_start_mb": round(start, 1),
                  "rss_end_mb": round(mem(), 1), "peak_rss_mb": round(mem("VmHWM"), 1),
                  "steps": STEPS}))
