"""What people do today to save a step's memory: `tf.recompute_grad` around each block, and Keras's RematScope.

The blocks are cut out of the zoo's own models, so that weights, shapes and loss are the same. Neither is exact: inside
`tf.recompute_grad` BatchNorm updates its statistics twice a step, and Dropout draws another mask the second time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf
from keras import layers

from benchmarks.zoo import Workload

Block = tuple[list[Any], Any]
"""(input tensors, output tensor) of a functional model."""


def resnet50_blocks(model: Any) -> list[Block]:
    """Each residual block; stem and head stay as they are."""
    ends = [layer.output for layer in model.layers if layer.name.endswith("_out")]
    starts = [model.get_layer("pool1_pool").output, *ends[:-1]]
    return [([start], end) for start, end in zip(starts, ends, strict=True)]


def gpt_blocks(model: Any) -> list[Block]:
    """Each transformer block ends in its second addition."""
    ends = [layer.output for layer in model.layers if isinstance(layer, layers.Add)][1::2]
    first = next(layer.output for layer in model.layers if type(layer).__name__ == "Positions")
    return [([start], end) for start, end in zip([first, *ends[:-1]], ends, strict=True)]


def unet_blocks(model: Any) -> list[Block]:
    """Each pair of convolutions; on the way up together with the skip it reads."""
    ends = [layer.output for layer in model.layers if isinstance(layer, layers.ReLU)][1::2]
    half = len(ends) // 2
    down = [([start], end) for start, end in zip([model.input, *ends[:half]], ends[: half + 1], strict=True)]
    skips = reversed(ends[:half])
    up = [([start, skip], end) for start, skip, end in zip(ends[half:-1], skips, ends[half + 1 :], strict=True)]
    return [*down, *up]


BLOCKS: dict[str, Callable[[Any], list[Block]]] = {
    "resnet50": resnet50_blocks,
    "unet": unet_blocks,
    "gpt": gpt_blocks,
}


class Recomputed(keras.Model):
    """A functional model whose blocks keep their inputs only, and run again in the backward pass."""

    def __init__(self, model: Any, blocks: Sequence[Block]) -> None:
        super().__init__()
        first, last = blocks[0][0][0], blocks[-1][1]
        self.stem = None if first is model.input else keras.Model(model.input, first)
        self.parts = [keras.Model(given, end) for given, end in blocks]
        self.head = keras.Model(last, model.output)
        self._wiring = [([id(tensor) for tensor in given], id(end)) for given, end in blocks]

    def call(self, x: Any, training: bool = False) -> Any:
        known = {self._wiring[0][0][0]: x if self.stem is None else self.stem(x, training=training)}
        for part, (given, end) in zip(self.parts, self._wiring, strict=True):
            again = tf.recompute_grad(
                lambda *tensors, part=part: part(list(tensors) if len(tensors) > 1 else tensors[0], training=training)
            )
            known[end] = again(*(known[name] for name in given))
        return self.head(known[self._wiring[-1][1]], training=training)


def by_hand(name: str, workload: Workload) -> Any:
    """The workload's model with `tf.recompute_grad` around each block, compiled alike."""
    model = workload.model
    assert model is not None
    recomputed = Recomputed(model, BLOCKS[name](model))
    optimizer = type(model.optimizer).from_config(model.optimizer.get_config())
    recomputed.compile(optimizer, model.loss, metrics=["accuracy"])
    return recomputed


def in_remat_scope(build: Callable[[int], Workload], batch: int) -> Any:
    """The same model built inside `keras.RematScope`, as its documentation says."""
    with keras.RematScope(mode="full"):
        return build(batch).model
