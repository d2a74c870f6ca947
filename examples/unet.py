"""Train a U-Net to segment bright discs out of noise, on synthetic images."""

import argparse

import keras
import numpy as np
from keras import layers


def conv_block(x: keras.KerasTensor, filters: int) -> keras.KerasTensor:
    for _ in range(2):
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
        x = layers.BatchNormalization()(x)
        x = layers.ReLU()(x)
    return x


def unet(size: int, filters: int, depth: int) -> keras.Model:
    inputs = keras.Input((size, size, 1))
    x, skips = inputs, []
    for level in range(depth):
        x = conv_block(x, filters * 2**level)
        skips.append(x)
        x = layers.MaxPooling2D()(x)
    x = layers.Dropout(0.3)(conv_block(x, filters * 2**depth))
    for level in reversed(range(depth)):
        x = layers.Conv2DTranspose(filters * 2**level, 2, strides=2)(x)
        x = conv_block(layers.Concatenate()([skips[level], x]), filters * 2**level)
    return keras.Model(inputs, layers.Conv2D(1, 1, activation="sigmoid", dtype="float32")(x), name="unet")


class Discs(keras.utils.PyDataset):
    """Batches of noisy images with one disc each, and the masks of the discs, drawn as they are asked for."""

    def __init__(self, steps: int, batch_size: int, size: int) -> None:
        super().__init__()
        self.steps, self.batch_size, self.size = steps, batch_size, size

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(index)
        row, col = np.mgrid[: self.size, : self.size]
        center = rng.uniform(0.25, 0.75, (2, self.batch_size, 1, 1)) * self.size
        radius = rng.uniform(0.1, 0.25, (self.batch_size, 1, 1)) * self.size
        mask = ((row - center[0]) ** 2 + (col - center[1]) ** 2 < radius**2).astype("float32")
        image = mask + rng.normal(0.0, 0.5, mask.shape)
        return image[..., None].astype("float32"), mask[..., None]


def dice_loss(y_true: keras.KerasTensor, y_pred: keras.KerasTensor) -> keras.KerasTensor:
    overlap = keras.ops.sum(y_true * y_pred, axis=(1, 2, 3))
    total = keras.ops.sum(y_true + y_pred, axis=(1, 2, 3))
    return 1.0 - (2.0 * overlap + 1.0) / (total + 1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4, help="steps per epoch")
    parser.add_argument("--image-size", type=int, default=128)
    parser.add_argument("--filters", type=int, default=32, help="filters of the first level")
    parser.add_argument("--depth", type=int, default=4)
    args = parser.parse_args()

    keras.utils.set_random_seed(0)
    model = unet(args.image_size, args.filters, args.depth)
    model.compile(optimizer=keras.optimizers.Adam(1e-3), loss=dice_loss, metrics=["binary_accuracy"])
    history = model.fit(
        Discs(args.steps, args.batch_size, args.image_size), epochs=args.epochs, shuffle=False, verbose=2
    )
    print("loss by epoch:", [round(loss, 4) for loss in history.history["loss"]])


if __name__ == "__main__":
    main()
