"""Random functional Keras models, small and seeded: what nobody thought of putting into the zoo."""

from __future__ import annotations

from random import Random
from typing import Any

import keras
import tensorflow as tf
from keras import layers, optimizers

from benchmarks.zoo import Workload

ACTIVATIONS = ("relu", "gelu", "swish", "tanh", "softplus", "sigmoid", "elu", "leaky_relu")


def random_workload(seed: int) -> Workload:
    """A model, its optimizer and a batch, all decided by the seed."""
    random = Random(seed)
    keras.utils.set_random_seed(seed)
    batch = random.choice((3, 4, 8, 12, 16))
    inputs, tensor = random.choice((_images, _images, _rows, _sequences))(random)
    outputs = layers.Dense(random.choice((1, 3)))(tensor)
    model = keras.Model(inputs, outputs)
    model.compile(_optimizer(random), random.choice(("mse", "mae", "huber")), metrics=random.choice(([], ["mae"])))
    x = tf.random.stateless_normal((batch, *inputs.shape[1:]), [seed, 1])
    y = tf.random.stateless_normal((batch, *outputs.shape[1:]), [seed, 2])
    weights = (tf.abs(y[:, 0]),) if random.random() < 0.2 else ()
    return Workload(model, None, (x, y, *weights))


def _optimizer(random: Random) -> keras.Optimizer:
    kind = random.choice(
        (optimizers.SGD, optimizers.Adam, optimizers.AdamW, optimizers.RMSprop, optimizers.Adagrad, optimizers.Lion)
    )
    options: dict[str, Any] = {"learning_rate": 1e-3}
    if random.random() < 0.4:
        options[random.choice(("clipnorm", "global_clipnorm", "clipvalue"))] = 0.5
    if kind is optimizers.SGD and random.random() < 0.5:
        options.update(momentum=0.9, nesterov=random.random() < 0.5)
    return kind(**options)


def _images(random: Random) -> tuple[Any, Any]:
    size = random.choice((16, 20, 28))
    inputs = keras.Input((size, size, random.choice((1, 3))))
    seen = [layers.Conv2D(random.choice((8, 12)), 3, padding="same")(inputs)]
    shared = layers.Conv2D(seen[0].shape[-1], 3, padding="same", use_bias=random.random() < 0.5)
    for _ in range(random.randint(5, 14)):
        seen.append(_next_image(random, seen, shared))
    pooled = random.choice((layers.GlobalAveragePooling2D, layers.GlobalMaxPooling2D, layers.Flatten))()
    return inputs, pooled(seen[-1])


def _next_image(random: Random, seen: list[Any], shared: Any) -> Any:
    """One more tensor from those there are: mostly from the last, at times joined with an earlier one."""
    x = seen[-1]
    alike = [tensor for tensor in seen[:-1] if tensor.shape == x.shape]
    same_size = [tensor for tensor in seen[:-1] if tensor.shape[1:3] == x.shape[1:3]]
    choice = random.random()
    if alike and choice < 0.25:
        return random.choice((layers.Add, layers.Multiply, layers.Maximum))()([x, random.choice(alike)])
    if same_size and choice < 0.32 and x.shape[-1] < 32:
        return layers.Concatenate()([x, random.choice(same_size)])
    if choice < 0.40 and x.shape[1] >= 4:
        return random.choice((layers.MaxPooling2D, layers.AveragePooling2D))(2)(x)
    if choice < 0.45 and x.shape[1] <= 14:
        return layers.UpSampling2D()(x)
    if choice < 0.52 and x.shape[-1] == shared.filters:
        return shared(x)
    makers = (
        lambda: layers.Conv2D(random.choice((4, 8, 12)), random.choice((1, 3)), padding="same"),
        lambda: layers.Conv2D(8, 3, padding="same", activation=random.choice(ACTIVATIONS), use_bias=False),
        lambda: layers.DepthwiseConv2D(3, padding="same"),
        lambda: layers.Conv2DTranspose(4, 3, padding="same"),
        layers.BatchNormalization,
        layers.BatchNormalization,
        layers.LayerNormalization,
        lambda: layers.Dropout(0.3),
        lambda: layers.SpatialDropout2D(0.3),
        lambda: layers.Activation(random.choice(ACTIVATIONS)),
    )
    return random.choice(makers)()(x)


def _rows(random: Random) -> tuple[Any, Any]:
    inputs = keras.Input((random.choice((64, 256)), random.choice((8, 32))))
    width = random.choice((64, 128))
    x = layers.Dense(width)(inputs)
    shared = layers.Dense(width, activation="tanh")
    for _ in range(random.randint(3, 12)):
        makers = (
            lambda: layers.Dense(width, activation=random.choice(ACTIVATIONS), kernel_regularizer="l2"),
            lambda: layers.Dense(width),
            lambda: shared,
            layers.BatchNormalization,
            lambda: layers.Dropout(0.2),
            lambda: layers.GaussianNoise(0.1),
            lambda: layers.Activation(random.choice(ACTIVATIONS)),
        )
        y = random.choice(makers)()(x)
        x = layers.Add()([x, y]) if random.random() < 0.3 else y
    return inputs, layers.GlobalAveragePooling1D()(x)


def _sequences(random: Random) -> tuple[Any, Any]:
    length, width = random.choice((16, 40)), random.choice((16, 32))
    inputs = keras.Input((length, width))
    x = layers.Dense(width)(inputs)
    for _ in range(random.randint(1, 4)):
        kind = random.randrange(5)
        if kind == 0:
            x = layers.Add()([x, layers.MultiHeadAttention(2, width // 2, dropout=random.choice((0.0, 0.2)))(x, x)])
        elif kind == 1:
            x = random.choice((layers.LSTM, layers.GRU))(width, return_sequences=True)(x)
        elif kind == 2:
            x = layers.Conv1D(width, 3, padding="causal", activation=random.choice(ACTIVATIONS))(x)
        elif kind == 3:
            x = layers.LayerNormalization()(x)
        else:
            x = layers.Add()([x, layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(x))])
    return inputs, random.choice((layers.GlobalAveragePooling1D, layers.Flatten))()(x)
