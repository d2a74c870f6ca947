"""Train a stacked LSTM to classify noisy sine waves by their frequency."""

import argparse

import keras
import numpy as np
from keras import layers


def synthetic_waves(count: int, length: int, features: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, count)
    time = np.linspace(0.0, 2.0 * np.pi, length)[None, :, None]
    phase = rng.uniform(0.0, 2.0 * np.pi, (count, 1, features))
    waves = np.sin((labels + 1)[:, None, None] * time + phase)
    waves += rng.normal(0.0, 0.1, waves.shape)
    return waves.astype("float32"), labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5, help="steps per epoch")
    parser.add_argument("--length", type=int, default=100, help="time steps per sequence")
    parser.add_argument("--features", type=int, default=16)
    parser.add_argument("--units", type=int, default=128)
    parser.add_argument("--classes", type=int, default=6)
    args = parser.parse_args()

    keras.utils.set_random_seed(0)
    x, y = synthetic_waves(args.batch_size * args.steps, args.length, args.features, args.classes)
    model = keras.Sequential(
        [
            keras.Input((args.length, args.features)),
            layers.LSTM(args.units, return_sequences=True),
            layers.Dropout(0.2),
            layers.LSTM(args.units),
            layers.Dense(args.classes, activation="softmax"),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.RMSprop(1e-3, clipnorm=1.0),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    history = model.fit(x, y, batch_size=args.batch_size, epochs=args.epochs, verbose=2)
    print("loss by epoch:", [round(loss, 4) for loss in history.history["loss"]])


if __name__ == "__main__":
    main()
