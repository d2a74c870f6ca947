"""Train a Wasserstein GAN with gradient penalty on synthetic 32x32 images."""

import argparse

import keras
import numpy as np
import tensorflow as tf
from keras import layers


def make_generator(latent: int, filters: int) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((latent,)),
            layers.Dense(4 * 4 * 4 * filters, use_bias=False),
            layers.Reshape((4, 4, 4 * filters)),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Conv2DTranspose(2 * filters, 4, strides=2, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Conv2DTranspose(filters, 4, strides=2, padding="same", use_bias=False),
            layers.BatchNormalization(),
            layers.ReLU(),
            layers.Conv2DTranspose(3, 4, strides=2, padding="same", activation="tanh"),
        ],
        name="generator",
    )


def make_critic(filters: int) -> keras.Model:
    return keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            layers.Conv2D(filters, 4, strides=2, padding="same"),
            layers.LeakyReLU(0.2),
            layers.Conv2D(2 * filters, 4, strides=2, padding="same"),
            layers.LeakyReLU(0.2),
            layers.Conv2D(4 * filters, 4, strides=2, padding="same"),
            layers.LeakyReLU(0.2),
            layers.Flatten(),
            layers.Dense(1),
        ],
        name="critic",
    )


class WGAN(keras.Model):
    def __init__(self, generator: keras.Model, critic: keras.Model, latent: int, penalty: float = 10.0):
        super().__init__()
        self.generator, self.critic = generator, critic
        self.latent, self.penalty = latent, penalty
        self.seeds = keras.random.SeedGenerator(0)

    def compile(self, generator_optimizer, critic_optimizer):
        super().compile()
        self.generator_optimizer, self.critic_optimizer = generator_optimizer, critic_optimizer

    def gradient_penalty(self, real, fake):
        mix = keras.random.uniform((tf.shape(real)[0], 1, 1, 1), seed=self.seeds)
        blend = mix * real + (1.0 - mix) * fake
        with tf.GradientTape() as tape:
            tape.watch(blend)
            score = self.critic(blend, training=True)
        slope = tf.sqrt(tf.reduce_sum(tape.gradient(score, blend) ** 2, axis=(1, 2, 3)) + 1e-12)
        return tf.reduce_mean((slope - 1.0) ** 2)

    def train_step(self, real):
        noise = keras.random.normal((tf.shape(real)[0], self.latent), seed=self.seeds)
        with tf.GradientTape() as tape:
            fake = self.generator(noise, training=True)
            difference = self.critic(fake, training=True) - self.critic(real, training=True)
            critic_loss = tf.reduce_mean(difference) + self.penalty * self.gradient_penalty(real, fake)
        weights = self.critic.trainable_variables
        self.critic_optimizer.apply(tape.gradient(critic_loss, weights), weights)

        noise = keras.random.normal((tf.shape(real)[0], self.latent), seed=self.seeds)
        with tf.GradientTape() as tape:
            generator_loss = -tf.reduce_mean(self.critic(self.generator(noise, training=True), training=True))
        weights = self.generator.trainable_variables
        self.generator_optimizer.apply(tape.gradient(generator_loss, weights), weights)
        return {"critic_loss": critic_loss, "generator_loss": generator_loss}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5, help="steps per epoch")
    parser.add_argument("--latent", type=int, default=128)
    parser.add_argument("--filters", type=int, default=64)
    args = parser.parse_args()

    keras.utils.set_random_seed(0)
    colors = np.random.default_rng(0).uniform(-1.0, 1.0, (args.batch_size * args.steps, 1, 1, 3))
    ramp = np.linspace(0.0, 1.0, 32)[None, :, None, None]
    images = np.broadcast_to(colors * ramp, (len(colors), 32, 32, 3)).astype("float32")

    gan = WGAN(make_generator(args.latent, args.filters), make_critic(args.filters), args.latent)
    gan.compile(
        generator_optimizer=keras.optimizers.Adam(1e-4, beta_1=0.5),
        critic_optimizer=keras.optimizers.Adam(1e-4, beta_1=0.5),
    )
    history = gan.fit(images, batch_size=args.batch_size, epochs=args.epochs, verbose=2)
    for name, losses in history.history.items():
        print(f"{name} by epoch:", [round(float(loss), 4) for loss in losses])


if __name__ == "__main__":
    main()
