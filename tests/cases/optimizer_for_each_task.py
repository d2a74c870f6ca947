"""One Adam for each task, each built for all weights of the shared network: one for all of them does."""
import os
import sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import keras
import tensorflow as tf

BAD = sys.argv[1] == "bad"
TASKS = ["age", "sex", "income", "churn", "tenure", "ltv"]
trunk = keras.Sequential([keras.Input((256,)), keras.layers.Dense(1600, "relu"), keras.layers.Dense(1600, "relu")])
heads = {t: keras.layers.Dense(1, name=t) for t in TASKS}
for h in heads.values():
    h.build((None, 1600))
everything = trunk.trainable_variables + [v for h in heads.values() for v in h.trainable_variables]
if BAD:
    optimizers = {t: keras.optimizers.Adam(1e-3) for t in TASKS}
else:
    shared = keras.optimizers.Adam(1e-3)
    shared.build(everything)
    optimizers = dict.fromkeys(TASKS, shared)
for opt in {id(o): o for o in optimizers.values()}.values():
    if not opt.built:
        opt.build(everything)  # CULPRIT


def step(task, x, y):
    weights = trunk.trainable_variables + heads[task].trainable_variables
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((heads[task](trunk(x)) - y) ** 2)
    grads = dict(zip([id(v) for v in weights], tape.gradient(loss, weights)))
    optimizers[task].apply([grads.get(id(v), tf.zeros_like(v)) for v in everything], everything)
    return loss


for epoch in range(6):
    for task in TASKS:
        step(task, tf.random.normal((64, 256)), tf.zeros((64, 1)))
