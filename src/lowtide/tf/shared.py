"""Arrays given to `fit` as tensors outside the device's allocator.

Keras makes one tensor of each array, the validation data's after the first epoch, and TensorFlow copies it to the CPU's
allocator: all the data would then take its share of a budget that is the step's. A tensor made through DLPack shares
the array's bytes instead. It has to begin at a multiple of 64, where NumPy's arrays hardly ever lie, so they are moved.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

ALIGNMENT = 64
WORTH_IT = 1 << 16
"""Bytes: smaller arrays may be copied."""


def shared(array: Any) -> Any:
    """A tensor that shares the array's bytes, moved once to where it can; anything but an array as it is.

    Keras casts floating-point arrays to its own float type, which would move them again: done here.
    """
    if not isinstance(array, np.ndarray) or isinstance(array, np.memmap) or array.nbytes < WORTH_IT:
        return array
    dtype = np.dtype(keras.config.floatx()) if array.dtype.kind == "f" else array.dtype
    if dtype.kind not in "fiub" or not dtype.isnative:
        return array
    size = array.size * dtype.itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    moved = raw[start : start + size].view(dtype).reshape(array.shape)
    moved[...] = array
    return tf.experimental.dlpack.from_dlpack(moved.__dlpack__())


def sharing_arrays(fit: Callable[..., Any]) -> Callable[..., Any]:
    """`Model.fit` whose arrays stay where they are, out of the device's allocator."""
    signature = inspect.signature(fit)

    @functools.wraps(fit)
    def call(*arguments: Any, **options: Any) -> Any:
        given = signature.bind(*arguments, **options)
        for name in ("x", "y", "sample_weight", "validation_data"):
            value = given.arguments.get(name)
            if not isinstance(value, tf.data.Dataset | keras.utils.PyDataset):
                given.arguments[name] = tf.nest.map_structure(shared, value)
        return fit(*given.args, **given.kwargs)

    return call
