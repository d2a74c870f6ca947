"""The one representation of a training step, and nothing that knows of TensorFlow.

A Program is a list of ops in the order they were traced. A value is what an op leaves behind; its shape is a function
of the batch size, so one Program answers for every batch. Passes never hang state on ops: they keep side tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple


class Dim(NamedTuple):
    """One dimension: `fixed + per_sample * batch`, divided by `divisor` and rounded down."""

    fixed: int
    per_sample: int = 0
    divisor: int = 1

    def at(self, batch: int) -> int:
        return max(0, (self.fixed + self.per_sample * batch) // self.divisor)

    def __str__(self) -> str:
        if not self.per_sample:
            return str(self.at(1))
        batch = "B" if self.per_sample == 1 else f"{self.per_sample}B"
        line = f"{batch}{self.fixed:+d}" if self.fixed else batch
        return line if self.divisor == 1 else f"({line})/{self.divisor}"


Shape = tuple[Dim, ...]

ITEM_BYTES: Mapping[str, int] = {
    "bool": 1, "int8": 1, "uint8": 1, "qint8": 1, "quint8": 1, "int4": 1, "uint4": 1, "int2": 1, "uint2": 1,
    "float8_e5m2": 1, "float8_e4m3fn": 1, "float8_e4m3fnuz": 1, "float8_e4m3b11fnuz": 1, "float8_e5m2fnuz": 1,
    "float4_e2m1fn": 1,
    "int16": 2, "uint16": 2, "qint16": 2, "quint16": 2, "half": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "qint32": 4,
    "int64": 8, "uint64": 8, "float64": 8, "complex64": 8, "complex128": 16,
    "string": 24, "variant": 64, "resource": 0,
}  # fmt: skip
"""Bytes of one element in the tensor's own buffer. A string's characters and a variant's contents live elsewhere."""


class Source(NamedTuple):
    """A line of the user's code."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Value:
    """What an op leaves behind. `shape` is None when nothing could be said of it: see `Program.notes`."""

    dtype: str
    shape: Shape | None

    def elements(self, batch: int) -> int:
        return 0 if self.shape is None else prod(dim.at(batch) for dim in self.shape)

    def bytes(self, batch: int) -> int:
        return self.elements(batch) * ITEM_BYTES[self.dtype]


UNLISTED = -1
"""The `Op.position` of an op whose place in the framework's listing is not known."""


@dataclass(frozen=True, slots=True)
class Op:
    """One node of the step. Inputs and outputs are indices into `Program.values`, `after` into `Program.ops`.

    `attrs` holds what the tables of `lowtide.ops` need to know and no more. `bodies` are indices into
    `Program.functions` (a loop's condition and body, a conditional's branches, a call's callee), `trips` is how
    often a loop goes round. `position` is its place in the framework's own listing. `turns` has the branch that each
    step takes, over and over, where that is known.
    """

    name: str
    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    after: tuple[int, ...] = ()
    attrs: Mapping[str, object] = field(default_factory=dict)
    layer: str = ""
    source: Source | None = None
    phase: str = "forward"
    bodies: tuple[int, ...] = ()
    trips: Dim | None = None
    position: int = UNLISTED
    turns: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Resident:
    """Bytes on the device before the step: a variable, or a tensor the step closes over.

    `value` is the value of the Program that stands for it: a resource handle, or the tensor itself. `address` is
    where it lies, which tells its chunk from others of its size.
    """

    name: str
    category: str
    bytes: int
    value: int
    layer: str = ""
    source: Source | None = None
    address: int | None = None


class Chunk(NamedTuple):
    """A piece of the device's memory: in use since somebody asked for `requested` bytes, or free."""

    address: int
    bytes: int
    requested: int
    in_use: bool


@dataclass(frozen=True, slots=True)
class Note:
    """Something about the step that could not be computed, by name, and what was done about it.

    `treatment` is "bounded" (bytes is an upper bound), "rehearsed" (bytes were measured at a small batch),
    "compiled" (bytes are a compiler's), "assumed" (the text says what), or "unknown" until one of these is done.
    """

    what: str
    treatment: str
    bytes: int
    why: str


class Times(NamedTuple):
    """Seconds that ops took when the step was tried out at `batch`, by the op's name."""

    batch: int
    seconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Program:
    """A training step: every op between the batch and the updated weights.

    `inputs` are the values that come from outside, `outputs` those that must outlive the step, `keep` the ops that
    must run although nobody reads them. `batch` is the size the script used. `functions` are the bodies of loops
    and branches, Programs themselves. `chunks` is the map of the device's allocator before the step, residents, batch
    and whatever else the script keeps there, by address; None when it could not be had. `times` is None unless the
    step was tried out.
    """

    ops: tuple[Op, ...]
    values: tuple[Value, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    keep: tuple[int, ...] = ()
    residents: tuple[Resident, ...] = ()
    functions: tuple[Program, ...] = ()
    batch: int = 1
    chunks: tuple[Chunk, ...] | None = None
    name: str = ""
    notes: tuple[Note, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    times: Times | None = None

    @property
    def scales(self) -> bool:
        """Whether any size depends on the batch; False for a step traced with one fixed batch size."""
        return any(d.per_sample for v in self.values for d in v.shape or ()) or any(
            f.scales for f in self.functions
        )

    def argument_bytes(self, batch: int) -> list[int]:
        """Bytes of each tensor that a step is given anew: the batch, and nothing that is there before the step."""
        there = {resident.value for resident in self.residents}
        found = (self.values[value].bytes(batch) for value in self.inputs if value not in there)
        return [size for size in found if size]
