"""Every variable that a captured step closes over, as arrays: weights, slots, statistics, seeds, metrics."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lowtide.tf import compat, profile
from lowtide.tf.capture import Step


class State:
    """Reads a step's variables and puts them back. What is no variable, such as a table, is left alone."""

    def __init__(self, step: Step) -> None:
        resources = [outside for _, outside in step.captured if outside.dtype == tf.resource]
        kinds = [(handle, compat.variable_type(handle)) for handle in resources]
        self._variables = [(handle, tf.as_dtype(kind[0])) for handle, kind in kinds if kind is not None]

    def read(self) -> list[Any]:
        """Copies: a view of a variable would make its next update copy it."""
        return [tf.raw_ops.ReadVariableOp(resource=h, dtype=d).numpy().copy() for h, d in self._variables]

    def write(self, values: Sequence[Any]) -> None:
        for (handle, dtype), value in zip(self._variables, values, strict=True):
            tf.raw_ops.AssignVariableOp(resource=handle, value=tf.constant(value, dtype))

    def settle(self) -> None:
        """Give each variable memory of its own, and the device's.

        An optimizer's slots may be one tensor of zeros until their first update, and a variable that was set from an
        array may lie where TensorFlow copied the array to, outside the device: the first update would put a copy in the
        middle of the free space of a step.
        """
        taken: set[int] = set()
        chunks = sorted((chunk.address, chunk.bytes) for chunk in profile.chunks() or ())
        for handle, dtype in self._variables:
            place = compat.address_of(handle)
            if place is None:
                continue
            if place in taken or (chunks and not _holds(chunks, place)):
                copy = tf.raw_ops.DeepCopy(x=tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype))
                tf.raw_ops.AssignVariableOp(resource=handle, value=copy)
                place = compat.address_of(handle)
            if place is not None:
                taken.add(place)


def _holds(chunks: Sequence[tuple[int, int]], place: int) -> bool:
    """Whether a place is in one of these chunks, which are sorted by address."""
    at = bisect.bisect_right(chunks, place, key=lambda chunk: chunk[0]) - 1
    return at >= 0 and place < sum(chunks[at])
