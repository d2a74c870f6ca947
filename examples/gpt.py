"""Train a small GPT (decoder-only transformer) to predict the next character of a synthetic text."""

import argparse

import keras
import numpy as np
from keras import layers, ops


class TokenAndPosition(layers.Layer):
    def __init__(self, vocabulary: int, length: int, width: int) -> None:
        super().__init__()
        self.tokens = layers.Embedding(vocabulary, width)
        self.positions = layers.Embedding(length, width)

    def call(self, ids):
        return self.tokens(ids) + self.positions(ops.arange(ops.shape(ids)[1]))


class Block(layers.Layer):
    """Pre-norm attention and feed-forward, each with a residual connection."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm_attention = layers.LayerNormalization(epsilon=1e-5)
        self.attention = layers.MultiHeadAttention(heads, width // heads, dropout=dropout)
        self.norm_mlp = layers.LayerNormalization(epsilon=1e-5)
        self.expand = layers.Dense(4 * width, activation="gelu")
        self.project = layers.Dense(width)
        self.dropout = layers.Dropout(dropout)

    def call(self, x, training=None):
        y = self.norm_attention(x)
        y = self.attention(y, y, use_causal_mask=True, training=training)
        x = x + self.dropout(y, training=training)
        y = self.project(self.expand(self.norm_mlp(x)))
        return x + self.dropout(y, training=training)


class GPT(keras.Model):
    def __init__(self, vocabulary: int, length: int, width: int, heads: int, blocks: int, dropout: float):
        super().__init__()
        self.embed = TokenAndPosition(vocabulary, length, width)
        self.blocks = [Block(width, heads, dropout) for _ in range(blocks)]
        self.norm = layers.LayerNormalization(epsilon=1e-5)
        self.head = layers.Dense(vocabulary, use_bias=False)

    def call(self, ids, training=None):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, training=training)
        return self.head(self.norm(x))


def synthetic_text(count: int, length: int, vocabulary: int) -> np.ndarray:
    """Sequences from a sparse random Markov chain: each character has four likely successors."""
    rng = np.random.default_rng(0)
    successors = rng.integers(0, vocabulary, (vocabulary, 4))
    text = np.empty((count, length), "int32")
    text[:, 0] = rng.integers(0, vocabulary, count)
    for position in range(1, length):
        text[:, position] = successors[text[:, position - 1], rng.integers(0, 4, count)]
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=4, help="steps per epoch")
    parser.add_argument("--length", type=int, default=128, help="tokens per sequence")
    parser.add_argument("--vocabulary", type=int, default=512)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--blocks", type=int, default=6)
    parser.add_argument("--dropout", type=float, default=0.1)
    args = parser.parse_args()

    keras.utils.set_random_seed(0)
    text = synthetic_text(args.batch_size * args.steps, args.length + 1, args.vocabulary)
    model = GPT(args.vocabulary, args.length, args.width, args.heads, args.blocks, args.dropout)
    schedule = keras.optimizers.schedules.CosineDecay(1e-3, decay_steps=args.epochs * args.steps, alpha=0.1)
    model.compile(
        optimizer=keras.optimizers.AdamW(schedule, weight_decay=0.1, global_clipnorm=1.0),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    history = model.fit(text[:, :-1], text[:, 1:], batch_size=args.batch_size, epochs=args.epochs, verbose=2)
    print("loss by epoch:", [round(loss, 4) for loss in history.history["loss"]])


if __name__ == "__main__":
    main()
