"""Train an MLP-Mixer compiled by XLA on images of rare and common classes, the rare ones weighted up."""

import argparse

import keras
import numpy as np
from keras import layers


def synthetic_images(count: int, size: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Class k is half as frequent as class k - 1; its images are stripes of its own width."""
    rng = np.random.default_rng(0)
    share = 0.5 ** np.arange(classes)
    labels = rng.choice(classes, count, p=share / share.sum())
    columns = np.arange(size)[None, None, :, None]
    stripes = np.sin(columns / (labels[:, None, None, None] + 1.0))
    images = np.broadcast_to(stripes, (count, size, size, 3)) + rng.normal(0.0, 0.2, (count, size, size, 3))
    return images.astype("float32"), labels


def mixer_block(x, units: int):
    patches, channels = x.shape[1:]
    mixed = layers.Permute((2, 1))(layers.LayerNormalization()(x))
    mixed = layers.Dense(patches)(layers.Dense(units, activation="gelu")(mixed))
    x = layers.Add()([x, layers.Permute((2, 1))(mixed)])
    mixed = layers.Dense(channels)(layers.Dense(units, activation="gelu")(layers.LayerNormalization()(x)))
    return layers.Add()([x, mixed])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5, help="steps per epoch")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--classes", type=int, default=5)
    args = parser.parse_args()

    keras.utils.set_random_seed(0)
    x, y = synthetic_images(args.batch_size * args.steps, args.size, args.classes)
    inputs = keras.Input((args.size, args.size, 3))
    mixed = layers.Reshape((-1, 96))(layers.Conv2D(96, 8, strides=8)(inputs))
    for _ in range(args.blocks):
        mixed = mixer_block(mixed, units=192)
    outputs = layers.Dense(args.classes, activation="softmax")(layers.GlobalAveragePooling1D()(mixed))
    model = keras.Model(inputs, outputs)
    model.compile("adam", "sparse_categorical_crossentropy", weighted_metrics=["accuracy"], jit_compile=True)
    counts = np.bincount(y, minlength=args.classes)
    weights = {label: len(y) / (args.classes * max(1, count)) for label, count in enumerate(counts)}
    history = model.fit(x, y, batch_size=args.batch_size, epochs=args.epochs, class_weight=weights, verbose=2)
    print("loss by epoch:", [round(loss, 4) for loss in history.history["loss"]])


if __name__ == "__main__":
    main()
