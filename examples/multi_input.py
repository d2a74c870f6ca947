"""Train one model on text, an image and numbers to predict a category and a price together.

Inputs, targets, losses and sample weights are dictionaries keyed by name.
"""

import argparse

import keras
import numpy as np
from keras import layers

VOCABULARY, WORDS, NUMBERS, CATEGORIES = 5000, 40, 12, 8


def make_model(image_size: int, width: int) -> keras.Model:
    title = keras.Input((WORDS,), dtype="int32", name="title")
    photo = keras.Input((image_size, image_size, 3), name="photo")
    facts = keras.Input((NUMBERS,), name="facts")

    words = layers.Embedding(VOCABULARY, width, mask_zero=True)(title)
    words = layers.Bidirectional(layers.GRU(width // 2))(words)
    image = photo
    for filters in (width // 4, width // 2, width):
        image = layers.SeparableConv2D(filters, 3, padding="same", activation="relu")(image)
        image = layers.MaxPooling2D()(image)
    image = layers.GlobalAveragePooling2D()(image)
    numbers = layers.Dense(width, activation="relu")(layers.LayerNormalization()(facts))

    x = layers.Concatenate()([words, image, numbers])
    x = layers.Dropout(0.2)(layers.Dense(2 * width, activation="relu")(x))
    outputs = {
        "category": layers.Dense(CATEGORIES, activation="softmax", name="category")(x),
        "price": layers.Dense(1, name="price")(x),
    }
    return keras.Model({"title": title, "photo": photo, "facts": facts}, outputs)


def synthetic_items(count: int, image_size: int) -> tuple[dict, dict, dict]:
    rng = np.random.default_rng(0)
    category = rng.integers(0, CATEGORIES, count)
    facts = rng.normal(size=(count, NUMBERS)).astype("float32")
    facts[:, 0] += category
    title = rng.integers(1, VOCABULARY // CATEGORIES, (count, WORDS)) * CATEGORIES + category[:, None]
    lengths = rng.integers(5, WORDS + 1, count)
    title = np.where(np.arange(WORDS) < lengths[:, None], title, 0).astype("int32")
    photo = rng.uniform(size=(count, image_size, image_size, 3)).astype("float32")
    price = (facts[:, :1] + photo.mean(axis=(1, 2, 3))[:, None]).astype("float32")

    # Rare categories count for more; items of unknown price do not count in the price loss.
    frequency = np.bincount(category, minlength=CATEGORIES) / count
    weights = {
        "category": (1.0 / (CATEGORIES * frequency[category])).astype("float32"),
        "price": (rng.uniform(size=count) < 0.9).astype("float32"),
    }
    inputs = {"title": title, "photo": photo, "facts": facts}
    return inputs, {"category": category, "price": price}, weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=6, help="steps per epoch")
    parser.add_argument("--image-size", type=int, default=64)
    parser.add_argument("--width", type=int, default=128)
    args = parser.parse_args()

    keras.utils.set_random_seed(0)
    model = make_model(args.image_size, args.width)
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3),
        loss={"category": "sparse_categorical_crossentropy", "price": "mse"},
        loss_weights={"category": 1.0, "price": 0.25},
        metrics={"category": ["accuracy"], "price": ["mae"]},
        weighted_metrics={"category": [], "price": []},
    )
    inputs, targets, weights = synthetic_items(args.batch_size * args.steps, args.image_size)
    history = model.fit(
        inputs, targets, sample_weight=weights, batch_size=args.batch_size, epochs=args.epochs, verbose=2
    )
    print("loss by epoch:", [round(loss, 4) for loss in history.history["loss"]])


if __name__ == "__main__":
    main()
