"""Bytes an op needs while it runs beside its inputs and outputs, as a table.

Only what is worth counting: buffers that grow with the tensors. Some of it depends on the processor (oneDNN picks
its algorithm by instruction set); those rows are upper bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lowtide.program import Op, Value

Scratch = Callable[[Op, tuple[Value, ...], tuple[Value, ...], int], int]
"""(op, inputs, outputs, batch) -> bytes."""

SCRATCH: Mapping[str, Scratch] = {}
