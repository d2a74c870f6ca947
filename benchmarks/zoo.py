"""The models that predictions are measured on: every kind of training step that Lowtide claims to understand.

Each entry is a model and a batch size. Building one gives a compiled Keras model, or a `tf.function` for a
custom loop, and one batch of made-up data:

    entry = ENTRIES[0]
    work = entry.build(entry.batch)
    work.step(*work.data) if work.step else work.model.train_on_batch(*work.data)

A step takes at most a few seconds on two cores and stays under 3 GB: its structure matters here, not its
scale. Importing this module builds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import keras
import tensorflow as tf
from keras import layers, ops, optimizers

Tensor = Any  # a tf.Tensor or a symbolic keras.KerasTensor


class Workload(NamedTuple):
    """One training step ready to run: a compiled Keras model, or a step to call. The other is None."""

    model: Any
    step: Any
    data: tuple[Any, ...]  # (x, y) or (x, y, sample_weight) for a model; the positional arguments of a step


@dataclass(frozen=True)
class Entry:
    name: str
    batch: int
    build: Callable[[int], Workload]


# Data ------------------------------------------------------------------------------------------------------


def normal(*shape: int) -> tf.Tensor:
    """Made on the device: an array from NumPy is shared with it if it happens to be aligned, and then not counted."""
    return tf.random.stateless_normal(shape, [0, 0])


def integers(high: int, *shape: int, low: int = 0) -> tf.Tensor:
    return tf.random.stateless_uniform(shape, [1, 1], low, high, tf.int32)


def padded_tokens(vocabulary: int, batch: int, length: int) -> tf.Tensor:
    """Sequences of different lengths, padded with zeros on the right."""
    lengths = integers(length + 1, batch, 1, low=length // 3)
    return tf.where(tf.range(length) < lengths, integers(vocabulary, batch, length, low=1), 0)


# Shared ends -----------------------------------------------------------------------------------------------


def classifier(inputs: Tensor, logits: Tensor, optimizer: str | keras.Optimizer = "adam") -> keras.Model:
    """A model with softmax cross-entropy over its last axis."""
    model = keras.Model(inputs, logits)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"])
    return model


def regressor(inputs: Tensor, outputs: Tensor, optimizer: str | keras.Optimizer = "adam") -> keras.Model:
    model = keras.Model(inputs, outputs)
    model.compile(optimizer, "mse")
    return model


# Images ----------------------------------------------------------------------------------------------------


def application(name: str, size: int, optimizer: str, batch: int) -> Workload:
    """A network of keras.applications, from random weights."""
    model = getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=100)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return Workload(model, None, (normal(batch, size, size, 3), integers(100, batch)))


def lenet(batch: int) -> Workload:
    x = inputs = keras.Input((28, 28, 1))
    for filters in (6, 16):
        x = layers.Conv2D(filters, 5, padding="same", activation="tanh")(x)
        x = layers.AveragePooling2D(2)(x)
    x = layers.Flatten()(x)
    for units in (120, 84):
        x = layers.Dense(units, activation="tanh")(x)
    model = classifier(inputs, layers.Dense(10)(x), "sgd")
    return Workload(model, None, (normal(batch, 28, 28, 1), integers(10, batch)))


def cnn(batch: int, size: int = 64, dtype: str | None = None, optimizer: str | keras.Optimizer = "adam") -> Workload:
    """Convolutions with batch normalization and dropout, in mixed precision when `dtype` names a policy.

    The head stays in float32: a bfloat16 MatMul dies of SIGILL on virtual machines that only announce AMX.
    """
    x = inputs = keras.Input((size, size, 3))
    for filters in (32, 64, 128):
        x = layers.Conv2D(filters, 3, padding="same", use_bias=False, dtype=dtype)(x)
        x = layers.BatchNormalization(dtype=dtype)(x)
        x = layers.ReLU(dtype=dtype)(x)
        x = layers.MaxPooling2D(dtype=dtype)(x)
        x = layers.Dropout(0.25, dtype=dtype)(x)
    x = layers.GlobalAveragePooling2D(dtype=dtype)(x)
    model = classifier(inputs, layers.Dense(10, dtype="float32")(x), optimizer)
    return Workload(model, None, (normal(batch, size, size, 3), integers(10, batch)))


def cnn_float16(batch: int) -> Workload:
    """Small images: float16 convolutions are slow on a CPU."""
    return cnn(batch, 32, "mixed_float16", optimizers.LossScaleOptimizer(optimizers.Adam()))


def separable(batch: int) -> Workload:
    x = inputs = keras.Input((64, 64, 3))
    for filters in (32, 64, 128):
        x = layers.SeparableConv2D(filters, 3, padding="same", activation="relu")(x)
        x = layers.DepthwiseConv2D(3, strides=2, padding="same", activation="swish")(x)
    model = classifier(inputs, layers.Dense(10)(layers.GlobalMaxPooling2D()(x)), "rmsprop")
    return Workload(model, None, (normal(batch, 64, 64, 3), integers(10, batch)))


def grouped(batch: int) -> Workload:
    """ConvNeXt's block: Keras has XLA compile its convolutions in groups."""
    x = inputs = keras.Input((32, 32, 3))
    x = layers.Conv2D(48, 2, strides=2)(x)
    for _ in range(3):
        y = layers.LayerNormalization()(layers.Conv2D(48, 5, padding="same", groups=48)(x))
        x = layers.add([x, layers.Dense(48)(layers.Dense(192, activation="gelu")(y))])
    model = classifier(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)), "adamw")
    return Workload(model, None, (normal(batch, 32, 32, 3), integers(10, batch)))


def normalizations(batch: int) -> Workload:
    """Group, layer, instance and unit normalization; dilated and transposed convolutions."""
    x = inputs = keras.Input((48, 48, 3))
    x = layers.GroupNormalization(8)(layers.Conv2D(32, 3, padding="same")(x))
    x = layers.LayerNormalization()(layers.Conv2D(32, 3, dilation_rate=2, activation="gelu")(x))
    x = layers.SpatialDropout2D(0.1)(layers.Conv2D(64, 3, strides=2, activation="elu")(x))
    x = layers.GroupNormalization(-1)(layers.Conv2DTranspose(32, 4, strides=2)(x))
    x = layers.UnitNormalization()(layers.PReLU(shared_axes=(1, 2))(x))
    model = classifier(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)), "adamw")
    return Workload(model, None, (normal(batch, 48, 48, 3), integers(10, batch)))


def conv3d(batch: int) -> Workload:
    x = inputs = keras.Input((16, 32, 32, 1))
    for filters in (8, 16, 32):
        x = layers.Conv3D(filters, 3, padding="same", activation="relu")(x)
        x = layers.MaxPooling3D()(x)
    model = classifier(inputs, layers.Dense(5)(layers.Flatten()(x)))
    return Workload(model, None, (normal(batch, 16, 32, 32, 1), integers(5, batch)))


def unet(batch: int) -> Workload:
    def block(x: Tensor, filters: int) -> Tensor:
        for _ in range(2):
            x = layers.Conv2D(filters, 3, padding="same", use_bias=False)(x)
            x = layers.ReLU()(layers.BatchNormalization()(x))
        return x

    x = inputs = keras.Input((128, 128, 3))
    skips = []
    for filters in (16, 32, 64):
        x = block(x, filters)
        skips.append(x)
        x = layers.MaxPooling2D()(x)
    x = block(x, 128)
    for filters in (64, 32, 16):
        x = layers.Conv2DTranspose(filters, 2, strides=2)(x)
        x = block(layers.Concatenate()([skips.pop(), x]), filters)
    model = classifier(inputs, layers.Conv2D(4, 1)(x))
    return Workload(model, None, (normal(batch, 128, 128, 3), integers(4, batch, 128, 128)))


def autoencoder(batch: int) -> Workload:
    x = inputs = keras.Input((64, 64, 3))
    for filters in (16, 32, 64):
        x = layers.Conv2D(filters, 3, strides=2, padding="same", activation="relu")(x)
    for filters in (32, 16, 8):
        x = layers.UpSampling2D()(layers.Conv2D(filters, 3, padding="same", activation="relu")(x))
    model = regressor(inputs, layers.Conv2D(3, 3, padding="same")(x), "adamax")
    images = normal(batch, 64, 64, 3)
    return Workload(model, None, (images, images))


# Dense networks, recommenders, several inputs and outputs --------------------------------------------------


def mlp(batch: int, make_optimizer: Callable[[], keras.Optimizer] = optimizers.Adam) -> Workload:
    x = inputs = keras.Input((256,))
    for units in (512, 512, 256):
        x = layers.Dense(units, activation="relu")(x)
    model = classifier(inputs, layers.Dense(10)(x), make_optimizer())
    return Workload(model, None, (normal(batch, 256), integers(10, batch)))


def mlp_regularized(batch: int) -> Workload:
    """A Sequential with weight and activity penalties, noise, a constraint and a class-weighted batch."""
    model = keras.Sequential([keras.Input((256,)), layers.GaussianNoise(0.1)])
    for units in (512, 256):
        model.add(layers.Dense(units, "selu", kernel_regularizer="l2", activity_regularizer="l1"))
        model.add(layers.AlphaDropout(0.1))
    model.add(layers.Dense(10, "softmax", kernel_constraint=keras.constraints.MaxNorm(2.0)))
    model.compile("adam", "categorical_crossentropy", metrics=["accuracy", "auc"])
    targets = tf.one_hot(integers(10, batch), 10)
    return Workload(model, None, (normal(batch, 256), targets, tf.abs(normal(batch))))


def recommender(batch: int) -> Workload:
    """Two embedding towers and a bag of tags; the embeddings' gradients are IndexedSlices."""
    user, item = keras.Input((), dtype="int32", name="user"), keras.Input((), dtype="int32", name="item")
    tags = keras.Input((20,), dtype="int32", name="tags")
    left = layers.Embedding(20_000, 64)(user)
    bag = layers.GlobalAveragePooling1D()(layers.Embedding(5_000, 64, mask_zero=True)(tags))
    right = layers.Dense(64, activation="relu")(layers.Concatenate()([layers.Embedding(10_000, 64)(item), bag]))
    model = keras.Model([user, item, tags], layers.Dot(axes=1)([left, right]))
    model.compile("adagrad", keras.losses.BinaryCrossentropy(from_logits=True))
    x = (integers(20_000, batch), integers(10_000, batch), padded_tokens(5_000, batch, 20))
    return Workload(model, None, (x, tf.cast(integers(2, batch, 1), tf.float32)))


def siamese(batch: int) -> Workload:
    """One encoder applied to two images: every weight gets two gradients, summed."""
    encoder = keras.Sequential([keras.Input((48, 48, 1))], name="encoder")
    for filters in (32, 64):
        encoder.add(layers.Conv2D(filters, 3, activation="relu"))
        encoder.add(layers.MaxPooling2D())
    encoder.add(layers.Flatten())
    encoder.add(layers.Dense(64))
    left, right = keras.Input((48, 48, 1), name="left"), keras.Input((48, 48, 1), name="right")
    distance = ops.sum(ops.square(encoder(left) - encoder(right)), axis=1, keepdims=True)
    model = keras.Model([left, right], layers.Dense(1, activation="sigmoid")(distance))
    model.compile("nadam", "binary_crossentropy", metrics=["accuracy"])
    x = (normal(batch, 48, 48, 1), normal(batch, 48, 48, 1))
    return Workload(model, None, (x, tf.cast(integers(2, batch, 1), tf.float32)))


def multi_input(batch: int) -> Workload:
    """Dictionaries of inputs, targets and sample weights; two losses with weights."""
    title = keras.Input((30,), dtype="int32", name="title")
    photo = keras.Input((48, 48, 3), name="photo")
    words = layers.GRU(64)(layers.Embedding(2_000, 64, mask_zero=True)(title))
    image = layers.Conv2D(32, 3, strides=2, activation="relu")(photo)
    image = layers.GlobalAveragePooling2D()(layers.Conv2D(64, 3, strides=2, activation="relu")(image))
    x = layers.Dense(128, activation="relu")(layers.Concatenate()([words, image]))
    outputs = {
        "kind": layers.Dense(8, activation="softmax", name="kind")(x),
        "price": layers.Dense(1, name="price")(x),
    }
    model = keras.Model({"title": title, "photo": photo}, outputs)
    model.compile(
        "adam",
        loss={"kind": "sparse_categorical_crossentropy", "price": "huber"},
        loss_weights={"kind": 1.0, "price": 0.1},
        metrics={"kind": ["accuracy"], "price": ["mae"]},
    )
    inputs = {"title": padded_tokens(2_000, batch, 30), "photo": normal(batch, 48, 48, 3)}
    targets = {"kind": integers(8, batch), "price": normal(batch, 1)}
    weights = {"kind": tf.abs(normal(batch)), "price": tf.ones([batch])}
    return Workload(model, None, (inputs, targets, weights))


# Sequences -------------------------------------------------------------------------------------------------


def recurrent(layer: type[layers.Layer], batch: int) -> Workload:
    x = inputs = keras.Input((60, 32))
    x = layer(96, return_sequences=True)(x)
    x = layer(96)(layers.Dropout(0.2)(x))
    model = classifier(inputs, layers.Dense(6)(x), optimizers.RMSprop(clipnorm=1.0))
    return Workload(model, None, (normal(batch, 60, 32), integers(6, batch)))


def bidirectional_lstm(batch: int) -> Workload:
    """Two bidirectional layers over padded tokens, with a prediction for each token."""
    x = inputs = keras.Input((40,), dtype="int32")
    x = layers.Embedding(3_000, 64, mask_zero=True)(x)
    for units in (64, 48):
        x = layers.Bidirectional(layers.LSTM(units, return_sequences=True, dropout=0.1))(x)
    model = classifier(inputs, layers.Dense(12)(x))
    return Workload(model, None, (padded_tokens(3_000, batch, 40), integers(12, batch, 40)))


def conv_gru(batch: int) -> Workload:
    x = inputs = keras.Input((240, 4))
    for filters in (32, 64):
        x = layers.Conv1D(filters, 5, padding="causal", activation="relu")(x)
        x = layers.MaxPooling1D(3)(x)
    x = layers.GRU(64, recurrent_dropout=0.1, unroll=False)(x)
    model = regressor(inputs, layers.Dense(1)(x))
    return Workload(model, None, (normal(batch, 240, 4), normal(batch, 1)))


def conv_lstm(batch: int) -> Workload:
    x = inputs = keras.Input((8, 32, 32, 1))
    x = layers.BatchNormalization()(layers.ConvLSTM2D(16, 3, padding="same", return_sequences=True)(x))
    x = layers.ConvLSTM2D(16, 3, padding="same")(x)
    model = regressor(inputs, layers.Conv2D(1, 3, padding="same")(x))
    return Workload(model, None, (normal(batch, 8, 32, 32, 1), normal(batch, 32, 32, 1)))


def seq2seq(batch: int) -> Workload:
    """An LSTM encoder hands its state to an LSTM decoder that attends over the source."""
    source = keras.Input((30,), dtype="int32", name="source")
    target = keras.Input((24,), dtype="int32", name="target")
    encoded, *state = layers.LSTM(96, return_sequences=True, return_state=True)(layers.Embedding(1_000, 64)(source))
    decoded = layers.LSTM(96, return_sequences=True)(layers.Embedding(1_200, 64)(target), initial_state=state)
    context = layers.Attention()([decoded, encoded])
    model = classifier([source, target], layers.Dense(1_200)(layers.Concatenate()([decoded, context])))
    x = (integers(1_000, batch, 30), integers(1_200, batch, 24))
    return Workload(model, None, (x, integers(1_200, batch, 24)))


# Transformers ----------------------------------------------------------------------------------------------


class Positions(layers.Layer):
    """Adds a learned vector at each position."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.supports_masking = True

    def build(self, shape: tuple[int | None, ...]) -> None:
        self.table = self.add_weight(shape=shape[1:], initializer="random_normal", name="table")

    def call(self, x: Tensor) -> Tensor:
        return x + ops.cast(self.table, x.dtype)


def attention_block(x: Tensor, heads: int, causal: bool = False, dtype: str | None = None) -> Tensor:
    width = x.shape[-1]
    y = layers.LayerNormalization(dtype=dtype)(x)
    y = layers.MultiHeadAttention(heads, width // heads, dropout=0.1, dtype=dtype)(y, y, use_causal_mask=causal)
    x = layers.Add(dtype=dtype)([x, y])
    y = layers.LayerNormalization(dtype=dtype)(x)
    y = layers.Dense(width, dtype=dtype)(layers.Dense(4 * width, activation="gelu", dtype=dtype)(y))
    return layers.Add(dtype=dtype)([x, layers.Dropout(0.1, dtype=dtype)(y)])


def gpt(batch: int, dtype: str | None = None) -> Workload:
    inputs = keras.Input((64,), dtype="int32")
    x = Positions(dtype=dtype)(layers.Embedding(1_000, 128, dtype=dtype)(inputs))
    for _ in range(4):
        x = attention_block(x, 4, causal=True, dtype=dtype)
    x = layers.Dense(1_000, use_bias=False, dtype="float32")(layers.LayerNormalization(dtype=dtype)(x))
    optimizer = optimizers.AdamW(1e-3, global_clipnorm=1.0)
    if dtype == "mixed_float16":
        optimizer = optimizers.LossScaleOptimizer(optimizer)
    tokens = integers(1_000, batch, 65)
    return Workload(classifier(inputs, x, optimizer), None, (tokens[:, :-1], tokens[:, 1:]))


def bert(batch: int) -> Workload:
    """A masked-token encoder: the padding mask follows the embedding, and only masked tokens have weight."""
    inputs = keras.Input((64,), dtype="int32")
    x = Positions()(layers.Embedding(1_000, 128, mask_zero=True)(inputs))
    x = layers.Dropout(0.1)(layers.LayerNormalization()(x))
    for _ in range(3):
        x = attention_block(x, 4)
    model = classifier(inputs, layers.Dense(1_000)(x), optimizers.AdamW(1e-4))
    tokens = padded_tokens(1_000, batch, 64)
    chosen = tf.cast(integers(100, batch, 64) < 15, tf.float32)
    return Workload(model, None, (tokens, tokens, chosen))


def vit(batch: int) -> Workload:
    inputs = keras.Input((64, 64, 3))
    x = layers.Reshape((64, 96))(layers.Conv2D(96, 8, strides=8)(layers.Rescaling(1 / 255)(inputs)))
    x = Positions()(x)
    for _ in range(4):
        x = attention_block(x, 3)
    x = layers.GlobalAveragePooling1D()(layers.LayerNormalization()(x))
    model = classifier(inputs, layers.Dense(10)(x), optimizers.Lion(1e-4))
    return Workload(model, None, (normal(batch, 64, 64, 3), integers(10, batch)))


def cross_attention(batch: int) -> Workload:
    """A subclassed model: latent vectors attend over a longer sequence, twice with the same weights."""

    class Perceiver(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.latents = self.add_weight(shape=(1, 16, 64), initializer="random_normal", name="latents")
            self.read = layers.MultiHeadAttention(4, 16)
            self.mix = layers.GroupQueryAttention(16, 4, 2)
            self.head = layers.Dense(10)

        def call(self, x: Tensor) -> Tensor:
            latents = ops.tile(self.latents, (ops.shape(x)[0], 1, 1))
            for _ in range(2):
                latents = latents + self.read(latents, x)
                latents = latents + self.mix(latents, latents)
            return self.head(ops.mean(latents, axis=1))

    model = Perceiver()
    model(normal(1, 256, 32))  # build() would mark it as built and leave its layers unbuilt
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return Workload(model, None, (normal(batch, 256, 32), integers(10, batch)))


# Generative models -----------------------------------------------------------------------------------------


class Sampling(layers.Layer):
    """Draws from N(mean, exp(log_variance)) and adds the divergence from N(0, 1) to the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.seeds = keras.random.SeedGenerator(0)

    def call(self, statistics: tuple[Tensor, Tensor]) -> Tensor:
        mean, log_variance = statistics
        divergence = 1.0 + log_variance - ops.square(mean) - ops.exp(log_variance)
        self.add_loss(-0.5 * ops.mean(ops.sum(divergence, axis=1)))
        return mean + ops.exp(0.5 * log_variance) * keras.random.normal(ops.shape(mean), seed=self.seeds)


def vae(batch: int) -> Workload:
    x = inputs = keras.Input((32, 32, 1))
    for filters in (32, 64):
        x = layers.Conv2D(filters, 3, strides=2, padding="same", activation="relu")(x)
    x = layers.Flatten()(x)
    x = layers.Dense(8 * 8 * 64, activation="relu")(Sampling()([layers.Dense(16)(x), layers.Dense(16)(x)]))
    x = layers.Reshape((8, 8, 64))(x)
    for filters in (64, 32):
        x = layers.Conv2DTranspose(filters, 3, strides=2, padding="same", activation="relu")(x)
    model = regressor(inputs, layers.Conv2D(1, 3, padding="same")(x))
    images = normal(batch, 32, 32, 1)
    return Workload(model, None, (images, images))


class WGAN(keras.Model):
    """A train_step with two optimizers and, in the gradient penalty, a tape within a tape."""

    def __init__(self, generator: keras.Model, critic: keras.Model) -> None:
        super().__init__()
        self.generator, self.critic = generator, critic
        self.seeds = keras.random.SeedGenerator(0)

    def compile(self, generator_optimizer: keras.Optimizer, critic_optimizer: keras.Optimizer) -> None:
        super().compile()
        self.generator_optimizer, self.critic_optimizer = generator_optimizer, critic_optimizer

    def fakes(self, count: Tensor) -> Tensor:
        return self.generator(keras.random.normal((count, 64), seed=self.seeds), training=True)

    def gradient_penalty(self, real: Tensor, fake: Tensor) -> Tensor:
        mix = keras.random.uniform((tf.shape(real)[0], 1, 1, 1), seed=self.seeds)
        blend = mix * real + (1.0 - mix) * fake
        with tf.GradientTape() as tape:
            tape.watch(blend)
            score = self.critic(blend, training=True)
        slope = tf.sqrt(tf.reduce_sum(tape.gradient(score, blend) ** 2, axis=(1, 2, 3)) + 1e-12)
        return tf.reduce_mean((slope - 1.0) ** 2)

    def train_step(self, real: Tensor) -> dict[str, Tensor]:
        real = real[0] if isinstance(real, tuple) else real
        with tf.GradientTape() as tape:
            fake = self.fakes(tf.shape(real)[0])
            gap = tf.reduce_mean(self.critic(fake, training=True) - self.critic(real, training=True))
            critic_loss = gap + 10.0 * self.gradient_penalty(real, fake)
        weights = self.critic.trainable_variables
        self.critic_optimizer.apply(tape.gradient(critic_loss, weights), weights)
        with tf.GradientTape() as tape:
            fake = self.fakes(tf.shape(real)[0])
            generator_loss = -tf.reduce_mean(self.critic(fake, training=True))
        weights = self.generator.trainable_variables
        self.generator_optimizer.apply(tape.gradient(generator_loss, weights), weights)
        return {"critic_loss": critic_loss, "generator_loss": generator_loss}


def gan(batch: int) -> Workload:
    generator = keras.Sequential([keras.Input((64,)), layers.Dense(4 * 4 * 128), layers.Reshape((4, 4, 128))])
    for filters in (64, 32):
        generator.add(layers.Conv2DTranspose(filters, 4, strides=2, padding="same", use_bias=False))
        generator.add(layers.BatchNormalization())
        generator.add(layers.ReLU())
    generator.add(layers.Conv2DTranspose(3, 4, strides=2, padding="same", activation="tanh"))
    critic = keras.Sequential([keras.Input((32, 32, 3))])
    for filters in (32, 64, 128):
        critic.add(layers.Conv2D(filters, 4, strides=2, padding="same"))
        critic.add(layers.LeakyReLU(0.2))
    critic.add(layers.Flatten())
    critic.add(layers.Dense(1))
    model = WGAN(generator, critic)
    model.compile(optimizers.Adam(1e-4, beta_1=0.5), optimizers.Adam(1e-4, beta_1=0.5))
    model.generator_optimizer.build(generator.trainable_variables)
    model.critic_optimizer.build(critic.trainable_variables)
    model.built = True
    return Workload(model, None, (normal(batch, 32, 32, 3),))


# Custom loops ----------------------------------------------------------------------------------------------


def custom_keras(batch: int) -> Workload:
    """A Keras model and optimizer in a hand-written step, with clipping and a metric."""
    model = cnn(1).model  # compiled, but only the step below trains it
    optimizer = optimizers.SGD(0.01, momentum=0.9, nesterov=True)
    optimizer.build(model.trainable_variables)
    loss_fn = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    accuracy = keras.metrics.SparseCategoricalAccuracy()

    @tf.function(input_signature=[tf.TensorSpec([None, 64, 64, 3]), tf.TensorSpec([None], tf.int32)])
    def step(images: Tensor, labels: Tensor) -> Tensor:
        with tf.GradientTape() as tape:
            logits = model(images, training=True)
            loss = loss_fn(labels, logits)
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, model.trainable_variables), 1.0)
        optimizer.apply(gradients, model.trainable_variables)
        accuracy.update_state(labels, logits)
        return loss

    return Workload(None, step, (normal(batch, 64, 64, 3), integers(10, batch)))


def custom_plain(batch: int) -> Workload:
    """Two dense layers and SGD in plain TensorFlow: no Keras anywhere."""
    weights = [tf.Variable(0.05 * normal(*shape)) for shape in ((256, 512), (512,), (512, 10), (10,))]

    @tf.function(input_signature=[tf.TensorSpec([None, 256]), tf.TensorSpec([None], tf.int32)])
    def step(x: Tensor, labels: Tensor) -> Tensor:
        with tf.GradientTape() as tape:
            hidden = tf.nn.dropout(tf.nn.relu(x @ weights[0] + weights[1]), 0.1, seed=0)
            logits = hidden @ weights[2] + weights[3]
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        for weight, gradient in zip(weights, tape.gradient(loss, weights), strict=True):
            weight.assign_sub(0.01 * gradient)
        return loss

    return Workload(None, step, (normal(batch, 256), integers(10, batch)))


def custom_while(batch: int) -> Workload:
    """A recurrence written with tf.while_loop and TensorArray, differentiated through."""
    enter, recur = tf.Variable(0.1 * normal(16, 128)), tf.Variable(0.05 * normal(128, 128))

    @tf.function(input_signature=[tf.TensorSpec([None, 50, 16]), tf.TensorSpec([None, 128])])
    def step(x: Tensor, target: Tensor) -> Tensor:
        def advance(time: Tensor, state: Tensor, states: tf.TensorArray) -> tuple[Tensor, ...]:
            state = tf.tanh(tf.gather(x, time, axis=1) @ enter + state @ recur)
            return time + 1, state, states.write(time, state)

        with tf.GradientTape() as tape:
            start = tf.zeros([tf.shape(x)[0], 128])
            loop = (tf.constant(0), start, tf.TensorArray(tf.float32, size=50))
            _, _, states = tf.while_loop(lambda time, *_: time < 50, advance, loop)
            loss = tf.reduce_mean((tf.reduce_mean(states.stack(), axis=0) - target) ** 2)
        for weight, gradient in zip((enter, recur), tape.gradient(loss, (enter, recur)), strict=True):
            weight.assign_sub(0.01 * gradient)
        return loss

    return Workload(None, step, (normal(batch, 50, 16), normal(batch, 128)))


def custom_cond(batch: int) -> Workload:
    """tf.cond twice: a branch of the forward pass, and an update skipped when the loss is not finite."""
    wide = [tf.Variable(0.05 * normal(128, 1024)), tf.Variable(0.05 * normal(1024, 16))]
    narrow = tf.Variable(0.05 * normal(128, 16))
    weights = [*wide, narrow]

    @tf.function(input_signature=[tf.TensorSpec([None, 128]), tf.TensorSpec([None, 16])])
    def step(x: Tensor, target: Tensor) -> Tensor:
        with tf.GradientTape() as tape:
            output = tf.cond(tf.reduce_mean(x**2) > 0.5, lambda: tf.nn.gelu(x @ wide[0]) @ wide[1], lambda: x @ narrow)
            loss = tf.reduce_mean((output - target) ** 2)
        gradients = tape.gradient(loss, weights)
        if tf.math.is_finite(loss):
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.assign_sub(0.01 * gradient)
        return loss

    return Workload(None, step, (normal(batch, 128), normal(batch, 16)))


# The zoo ---------------------------------------------------------------------------------------------------

_OPTIMIZERS: dict[str, Callable[[], keras.Optimizer]] = {
    "sgd": optimizers.SGD,
    "momentum": partial(optimizers.SGD, momentum=0.9),
    "rmsprop": partial(optimizers.RMSprop, momentum=0.9, centered=True),
    "adagrad": optimizers.Adagrad,
    "adadelta": optimizers.Adadelta,
    "adam-amsgrad": partial(optimizers.Adam, amsgrad=True),
    "adamax": optimizers.Adamax,
    "nadam": optimizers.Nadam,
    "adamw": optimizers.AdamW,
    "lion": optimizers.Lion,
    "ftrl": optimizers.Ftrl,
    "adafactor": optimizers.Adafactor,
    "lamb": optimizers.Lamb,
    "loss-scale": lambda: optimizers.LossScaleOptimizer(optimizers.Adam()),
    "clipnorm": partial(optimizers.Adam, clipnorm=1.0),
    "global-clipnorm": partial(optimizers.Adam, global_clipnorm=1.0),
    "ema": partial(optimizers.SGD, momentum=0.9, use_ema=True, ema_overwrite_frequency=10),
    "accumulate": partial(optimizers.Adam, gradient_accumulation_steps=4),
}
if hasattr(optimizers, "Muon"):  # Keras 3.9 and later
    _OPTIMIZERS["muon"] = optimizers.Muon

# name, batches, builder
_MODELS: tuple[tuple[str, tuple[int, ...], Callable[[int], Workload]], ...] = (
    ("resnet50", (4, 8), partial(application, "ResNet50", 224, "adam")),
    ("resnet50v2", (8,), partial(application, "ResNet50V2", 96, "sgd")),
    ("mobilenetv2", (8, 24), partial(application, "MobileNetV2", 96, "rmsprop")),
    ("mobilenetv3small", (16,), partial(application, "MobileNetV3Small", 96, "adam")),
    ("efficientnetb0", (8,), partial(application, "EfficientNetB0", 96, "adam")),
    ("densenet121", (4,), partial(application, "DenseNet121", 96, "sgd")),
    ("vgg16", (8,), partial(application, "VGG16", 64, "sgd")),
    ("inceptionv3", (8,), partial(application, "InceptionV3", 128, "rmsprop")),
    ("xception", (4,), partial(application, "Xception", 128, "adam")),
    ("nasnetmobile", (4,), partial(application, "NASNetMobile", 96, "adam")),
    ("convnexttiny", (4,), partial(application, "ConvNeXtTiny", 64, "adamw")),
    ("lenet", (32, 256), lenet),
    ("cnn", (16, 64), cnn),
    ("cnn-float16", (8,), cnn_float16),
    ("cnn-bfloat16", (16,), partial(cnn, dtype="mixed_bfloat16")),
    ("separable", (16,), separable),
    ("grouped", (16,), grouped),
    ("normalizations", (16,), normalizations),
    ("conv3d", (8,), conv3d),
    ("unet", (2, 8), unet),
    ("autoencoder", (32,), autoencoder),
    ("mlp", (32, 1024), mlp),
    ("mlp-regularized", (64,), mlp_regularized),
    ("recommender", (256,), recommender),
    ("siamese", (16,), siamese),
    ("multi-input", (16,), multi_input),
    ("lstm", (16, 64), partial(recurrent, layers.LSTM)),
    ("gru", (16, 64), partial(recurrent, layers.GRU)),
    ("bidirectional-lstm", (16,), bidirectional_lstm),
    ("conv-gru", (32,), conv_gru),
    ("conv-lstm", (4,), conv_lstm),
    ("seq2seq", (16,), seq2seq),
    ("gpt", (4, 16), gpt),
    ("gpt-float16", (4,), partial(gpt, dtype="mixed_float16")),
    ("bert", (8,), bert),
    ("vit", (8, 32), vit),
    ("cross-attention", (16,), cross_attention),
    ("vae", (32,), vae),
    ("gan", (8, 32), gan),
    ("custom-keras", (16, 64), custom_keras),
    ("custom-plain", (32, 512), custom_plain),
    ("custom-while", (16, 64), custom_while),
    ("custom-cond", (64,), custom_cond),
    *((f"mlp-{name}", (32,), partial(mlp, make_optimizer=make)) for name, make in _OPTIMIZERS.items()),
)

ENTRIES: tuple[Entry, ...] = tuple(Entry(name, batch, build) for name, batches, build in _MODELS for batch in batches)
