"""Arrays given to `fit`, laid out so that TensorFlow shares them instead of copying them to its device.

Keras makes one tensor of each array, the validation data's after the first epoch. TensorFlow shares an array whose
first byte is at a multiple of 64, and copies any other to the CPU's allocator: data of the whole training set would
then take its share of a budget that is the step's. NumPy's arrays hardly ever lie like that, so they are moved once.
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


def shareable(array: Any) -> Any:
    """The same array where TensorFlow can share it; anything else as it is.

    Keras casts floating-point arrays to its own float type, which would move them again: done here.
    """
    if not isinstance(array, np.ndarray) or isinstance(array, np.memmap) or array.nbytes < WORTH_IT:
        return array
    dtype = np.dtype(keras.config.floatx()) if array.dtype.kind == "f" else array.dtype
    if dtype.hasobject or (dtype == array.dtype and _is_aligned(array)):
        return array
    size = array.size * dtype.itemsize
    raw = np.empty(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    moved = raw[start : start + size].view(dtype).reshape(array.shape)
    moved[...] = array
    return moved


def _is_aligned(array: np.ndarray[Any, Any]) -> bool:
    return array.flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0


def sharing_arrays(fit: Callable[..., Any]) -> Callable[..., Any]:
    """`Model.fit` whose arrays stay where they are, out of the device's allocator."""
    signature = inspect.signature(fit)

    @functools.wraps(fit)
    def call(*arguments: Any, **options: Any) -> Any:
        given = signature.bind(*arguments, **options)
        for name in ("x", "y", "sample_weight", "validation_data"):
            value = given.arguments.get(name)
            if not isinstance(value, tf.data.Dataset | keras.utils.PyDataset):
                given.arguments[name] = tf.nest.map_structure(shareable, value)
        return fit(*given.args, **given.kwargs)

    return call
