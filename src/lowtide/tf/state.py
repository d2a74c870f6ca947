"""Every variable that a captured step closes over, as arrays: weights, slots, statistics, seeds, metrics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from lowtide.tf import compat
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

    def unshare(self) -> None:
        """Give variables that share their memory a copy each.

        An optimizer's slots may be one tensor of zeros until their first update, and that would put the copies in the
        middle of the free space of the first step.
        """
        taken: set[int] = set()
        for handle, dtype in self._variables:
            place = compat.address_of(handle)
            if place in taken:
                copy = tf.raw_ops.DeepCopy(x=tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype))
                tf.raw_ops.AssignVariableOp(resource=handle, value=copy)
                place = compat.address_of(handle)
            if place is not None:
                taken.add(place)
