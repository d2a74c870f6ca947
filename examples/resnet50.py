"""Train ResNet50 from scratch on 224x224 images (synthetic here) with Adam."""

import argparse

import keras
import numpy as np
import tensorflow as tf


def synthetic_images(count: int, size: int, classes: int, batch_size: int) -> tf.data.Dataset:
    """Images whose mean brightness depends on the class, so that there is something to learn."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, count)
    images = rng.normal(0.0, 1.0, (count, size, size, 3)).astype("float32")
    images += (labels / classes - 0.5).astype("float32")[:, None, None, None]
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    return dataset.shuffle(count, seed=0).batch(batch_size, drop_remainder=True).prefetch(tf.data.AUTOTUNE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=2, help="steps per epoch")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    args = parser.parse_args()

    keras.utils.set_random_seed(0)
    dataset = synthetic_images(args.batch_size * args.steps, args.image_size, args.classes, args.batch_size)
    model = keras.applications.ResNet50(
        weights=None, input_shape=(args.image_size, args.image_size, 3), classes=args.classes
    )
    model.compile(
        optimizer=keras.optimizers.Adam(args.learning_rate),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    history = model.fit(dataset, epochs=args.epochs, verbose=2)
    print("loss by epoch:", [round(loss, 4) for loss in history.history["loss"]])


if __name__ == "__main__":
    main()
