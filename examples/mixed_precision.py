"""Train a vision transformer in mixed precision: computation in 16 bits, weights in 32."""

import argparse

import keras
import numpy as np
from keras import layers, ops


class PositionEmbedding(layers.Layer):
    """Adds a learned vector to each patch."""

    def build(self, shape):
        self.position = self.add_weight(shape=(1, *shape[1:]), initializer="random_normal", name="position")

    def call(self, x):
        return x + ops.cast(self.position, x.dtype)


def transformer_block(x: keras.KerasTensor, heads: int, dropout: float) -> keras.KerasTensor:
    width = x.shape[-1]
    y = layers.LayerNormalization(epsilon=1e-6)(x)
    y = layers.MultiHeadAttention(heads, width // heads, dropout=dropout)(y, y)
    x = layers.Add()([x, y])
    y = layers.LayerNormalization(epsilon=1e-6)(x)
    y = layers.Dense(4 * width, activation="gelu")(y)
    y = layers.Dropout(dropout)(layers.Dense(width)(y))
    return layers.Add()([x, y])


def vision_transformer(size: int, patch: int, width: int, blocks: int, heads: int, classes: int) -> keras.Model:
    inputs = keras.Input((size, size, 3))
    x = layers.Conv2D(width, patch, strides=patch)(inputs)
    x = layers.Reshape((-1, width))(x)
    x = PositionEmbedding()(x)
    for _ in range(blocks):
        x = transformer_block(x, heads, dropout=0.1)
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization(epsilon=1e-6)(x))
    # The softmax needs the range of float32.
    return keras.Model(inputs, layers.Dense(classes, activation="softmax", dtype="float32")(x))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="mixed_float16", choices=["mixed_float16", "mixed_bfloat16", "float32"])
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4, help="steps per epoch")
    parser.add_argument("--image-size", type=int, default=96)
    parser.add_argument("--patch-size", type=int, default=8)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--heads", type=int, default=3)
    parser.add_argument("--classes", type=int, default=10)
    args = parser.parse_args()

    keras.utils.set_random_seed(0)
    keras.mixed_precision.set_global_policy(args.policy)
    model = vision_transformer(args.image_size, args.patch_size, args.width, args.blocks, args.heads, args.classes)
    # With mixed_float16, compile() wraps the optimizer in a LossScaleOptimizer.
    model.compile(
        optimizer=keras.optimizers.AdamW(3e-4, weight_decay=0.05),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )

    rng = np.random.default_rng(0)
    count = args.batch_size * args.steps
    labels = rng.integers(0, args.classes, count)
    images = rng.normal(0.0, 0.3, (count, args.image_size, args.image_size, 3)).astype("float32")
    images += (labels / args.classes - 0.5).astype("float32")[:, None, None, None]
    history = model.fit(images, labels, batch_size=args.batch_size, epochs=args.epochs, verbose=2)
    print("loss by epoch:", [round(loss, 4) for loss in history.history["loss"]])


if __name__ == "__main__":
    main()
