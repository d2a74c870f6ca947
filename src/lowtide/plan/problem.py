"""What a planner is asked and what it answers. Types only: no imports from the rest of Lowtide.

The game, as in Checkmate (MLSys 2020) and Moccasin (ICML 2023), widened to what TensorFlow does with buffers.
Executing a node costs `cost` and makes its output values; while it executes its inputs, its outputs and
`scratch` bytes are live. A value may be dropped and computed again. A schedule is the list of the nodes
executed, repeats allowed: a use reads the most recent execution of its producer, and a value lives from that
execution to the last use that reads it, no longer. An execution nobody reads is live while it executes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

NodeId = int
ValueId = int
Schedule = tuple[NodeId, ...]


@dataclass(frozen=True, slots=True)
class Value:
    """One tensor. Its storage is its own unless it is an alias, and then it is the storage of `alias_of`.

    `alias_of` and `may_reuse` name inputs of the node that makes this value. The first of `may_reuse` with the
    same number of bytes, read for the last time by this execution and not already taken by another output,
    gives its storage to this value: no new bytes. `kept` values are live when the schedule ends. `resident`
    values (weights, arguments) are live all the time; only they may lack a producer.
    """

    bytes: int
    kept: bool = False
    resident: bool = False
    alias_of: ValueId | None = None
    may_reuse: tuple[ValueId, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """One operation. `after`: its first execution follows the first execution of each of these nodes.

    A node that is not `recomputable` executes exactly once. `ends` are values that nobody may read once this
    node has executed (the old contents of a variable that it overwrites); such a node is not recomputable.
    """

    cost: float
    inputs: tuple[ValueId, ...] = ()
    outputs: tuple[ValueId, ...] = ()
    scratch: int = 0
    recomputable: bool = True
    after: tuple[NodeId, ...] = ()
    ends: tuple[ValueId, ...] = ()


@dataclass(frozen=True, slots=True)
class Problem:
    """Nodes in an order that can execute as it stands: the base schedule. Ids are positions in these tuples."""

    nodes: tuple[Node, ...]
    values: tuple[Value, ...]
    name: str = ""
    labels: tuple[str, ...] = ()

    @property
    def base(self) -> Schedule:
        return tuple(range(len(self.nodes)))

    @property
    def resident_bytes(self) -> int:
        return sum(v.bytes for v in self.values if v.resident and v.alias_of is None)

    def label(self, node: NodeId) -> str:
        return self.labels[node] if self.labels else f"node {node}"


@dataclass(frozen=True, slots=True)
class Checked:
    """What a schedule really does. `at` is the position in the schedule where the peak is."""

    peak: int
    cost: float
    at: int


@dataclass(frozen=True, slots=True)
class Solution:
    """A schedule within the budget. No schedule within it costs less than `lower_bound`, which is proven."""

    schedule: Schedule
    peak: int
    cost: float
    lower_bound: float
    how: str = ""

    @property
    def gap(self) -> float:
        return (self.cost - self.lower_bound) / self.cost if self.cost else 0.0

    @property
    def optimal(self) -> bool:
        return self.cost <= self.lower_bound * (1 + 1e-9)


@dataclass(frozen=True, slots=True)
class Smallest:
    """The smallest peak a search could reach, with its schedule, and the node that executes at that peak.

    `floor` is proven: no schedule at all has a smaller peak.
    """

    peak: int
    schedule: Schedule
    cost: float
    node: NodeId
    floor: int


@dataclass(frozen=True, slots=True)
class Progress:
    """What a solver is doing now: `cost` is of the best plan within the budget so far, if there is one."""

    stage: str
    seconds: float
    cost: float | None = None
    peak: int | None = None


Report = Callable[[Progress], None]


def silent(_: Progress) -> None:
    """The report of a solver nobody watches."""


@dataclass(frozen=True, slots=True)
class Point:
    """One point of the curve of bytes against time: the cheapest known plan within `budget`."""

    budget: int
    cost: float
    peak: int
    schedule: Schedule = field(repr=False)
