"""Train a convolutional network in TensorFlow 1 style: placeholders, tf.gradients and a Session."""

import argparse

import numpy as np
import tensorflow.compat.v1 as tf


def conv(x: tf.Tensor, filters: int, name: str) -> tf.Tensor:
    """3x3 convolution, bias, ReLU and 2x2 max pooling."""
    channels = int(x.shape[-1])
    with tf.variable_scope(name):
        kernel = tf.get_variable("kernel", [3, 3, channels, filters], initializer=tf.glorot_uniform_initializer())
        bias = tf.get_variable("bias", [filters], initializer=tf.zeros_initializer())
        x = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel, strides=1, padding="SAME"), bias))
        return tf.nn.max_pool2d(x, 2, 2, "VALID")


def dense(x: tf.Tensor, units: int, name: str) -> tf.Tensor:
    with tf.variable_scope(name):
        kernel = tf.get_variable("kernel", [int(x.shape[-1]), units], initializer=tf.glorot_uniform_initializer())
        bias = tf.get_variable("bias", [units], initializer=tf.zeros_initializer())
        return tf.matmul(x, kernel) + bias


def momentum_updates(loss: tf.Tensor, rate: float, momentum: float) -> tf.Operation:
    weights = tf.trainable_variables()
    updates = []
    for weight, gradient in zip(weights, tf.gradients(loss, weights), strict=True):
        slot = tf.get_variable(
            f"{weight.op.name}/momentum", weight.shape, initializer=tf.zeros_initializer(), trainable=False
        )
        velocity = tf.assign(slot, momentum * slot + gradient)
        updates.append(tf.assign_sub(weight, rate * velocity))
    return tf.group(*updates)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    args = parser.parse_args()

    tf.disable_eager_execution()
    tf.set_random_seed(0)
    size = args.image_size
    images = tf.placeholder(tf.float32, [None, size, size, 3], name="images")
    labels = tf.placeholder(tf.int32, [None], name="labels")
    keep = tf.placeholder_with_default(1.0, [], name="keep")

    x = images
    for level, filters in enumerate((32, 64, 128)):
        x = conv(x, filters, f"conv{level}")
    x = tf.reshape(x, [-1, (size // 8) ** 2 * 128])
    x = tf.nn.dropout(tf.nn.relu(dense(x, 256, "hidden")), rate=1.0 - keep)
    logits = dense(x, args.classes, "logits")
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    train = momentum_updates(loss, args.learning_rate, 0.9)

    rng = np.random.default_rng(0)
    ramp = np.linspace(0.0, 2.0 * np.pi, size)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for step in range(args.steps):
            batch_labels = rng.integers(0, args.classes, args.batch_size)
            stripes = np.sin((batch_labels + 1)[:, None] * ramp)[:, None, :, None]
            batch_images = stripes + rng.normal(0.0, 0.3, (args.batch_size, size, size, 3))
            feed = {images: batch_images, labels: batch_labels, keep: 0.8}
            _, value = session.run([train, loss], feed_dict=feed)
            if step % 5 == 0 or step == args.steps - 1:
                print(f"step {step}: loss {value:.4f}")


if __name__ == "__main__":
    main()
