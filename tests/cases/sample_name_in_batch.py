"""The batch that a tf.function is given has the sample's name in it, a Python text: each name is another trace."""
import os
import sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

BAD = sys.argv[1] == "bad"
layers = [tf.Variable(tf.random.normal((48, 48)) * 0.1) for _ in range(30)]


def batches(n):
    for i in range(n):
        yield {"image": tf.random.normal((16, 48)), "label": tf.zeros((16,)), "name": f"scan_{i:05d}.nii"}


@tf.function(reduce_retracing=True)
def train(batch, augment=None):
    with tf.GradientTape() as tape:
        h = batch["image"]
        for w in layers:
            h = tf.nn.elu(h @ w) + h
        loss = tf.reduce_mean(tf.square(tf.reduce_mean(h, 1) - batch["label"]))
    grads = tape.gradient(loss, layers)
    grads, _ = tf.clip_by_global_norm(grads, 1.0)
    for w, g in zip(layers, grads):
        w.assign_sub(1e-3 * g)
    return loss


def run_epoch():
    worst = (0.0, "")
    for batch in batches(60):
        name = batch["name"]
        if not BAD:
            batch.pop("name")
        worst = max(worst, (float(train(batch)), name))  # CULPRIT
    return worst


print(run_epoch())
