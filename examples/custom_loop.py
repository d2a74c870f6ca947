"""Train a convolutional classifier with a hand-written training loop compiled by tf.function."""

import argparse

import keras
import numpy as np
import tensorflow as tf
from keras import layers


def make_model(size: int, classes: int) -> keras.Model:
    inputs = keras.Input((size, size, 3))
    x = inputs
    for filters in (32, 64, 128):
        shortcut = layers.Conv2D(filters, 1, strides=2)(x)
        x = layers.Conv2D(filters, 3, strides=2, padding="same", use_bias=False)(x)
        x = layers.BatchNormalization()(x)
        x = layers.ReLU()(x)
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = layers.BatchNormalization()(x)
        x = layers.ReLU()(layers.Add()([x, shortcut]))
    x = layers.Dropout(0.2)(layers.GlobalAveragePooling2D()(x))
    return keras.Model(inputs, layers.Dense(classes)(x))


def synthetic_images(count: int, size: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Stripes: the class is the number of stripes."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, count)
    ramp = np.linspace(0.0, 2.0 * np.pi, size)
    stripes = np.sin((labels + 1)[:, None] * ramp)[:, None, :, None]
    return (stripes + rng.normal(0.0, 0.3, (count, size, size, 3))).astype("float32"), labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10, help="steps per epoch")
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--weight-decay", type=float, default=1e-4)
    args = parser.parse_args()

    keras.utils.set_random_seed(0)
    model = make_model(args.image_size, args.classes)
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = keras.optimizers.SGD(0.05, momentum=0.9, nesterov=True)
    accuracy = keras.metrics.SparseCategoricalAccuracy()
    kernels = [weight for weight in model.trainable_variables if weight.name == "kernel"]

    @tf.function
    def train_step(images, labels):
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            decay = tf.add_n([tf.nn.l2_loss(kernel) for kernel in kernels])
            loss = loss_fn(labels, logits) + args.weight_decay * decay
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        accuracy.update_state(labels, logits)
        return loss

    images, labels = synthetic_images(args.batch_size * args.steps, args.image_size, args.classes)
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(len(images), seed=0)
    dataset = dataset.batch(args.batch_size, drop_remainder=True).prefetch(2)
    for epoch in range(args.epochs):
        accuracy.reset_state()
        for step, batch in enumerate(dataset):
            loss = train_step(*batch)
            if step % 5 == 0:
                print(f"epoch {epoch} step {step}: loss {float(loss):.4f}")
        print(f"epoch {epoch}: loss {float(loss):.4f}, accuracy {float(accuracy.result()):.3f}")


if __name__ == "__main__":
    main()
