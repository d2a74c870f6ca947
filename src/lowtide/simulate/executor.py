"""How plain TensorFlow picks its order: a model of its executor and its thread pool, in made-up time.

A thread that finishes an op looks at what has become ready. Cheap kernels it runs itself, first come first served. The
others go to its own queue, newest in front, except the last, which it runs next unless there is something cheap to
do. A thread with nothing to do takes from the front of its own queue, then from the back of another's. Two threads
and kernels whose duration differs from run to run: hence an order that differs from run to run.

TensorFlow learns which kernels are cheap by timing them, but so slowly that in the first ninety steps only those
that say so themselves count: `CHEAP`.

Whom a finished op tells first is in `lowtide.simulate.edges`.

Known to be rough: durations. They are flops and bytes over typical rates; only their proportions matter. A branch, or a
loop that was not written out, counts as one op, where TensorFlow mixes its ops with those outside.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from math import prod, sqrt
from random import Random

from lowtide.ops import UNKNOWN, Act, rule_at
from lowtide.program import Op, Program, Value
from lowtide.simulate.edges import Edges, Graph

THREADS = 2

CHEAP = frozenset({
    "Const", "Placeholder", "_Arg", "VarHandleOp", "Identity", "IdentityN", "StopGradient", "PreventGradient",
    "Reshape", "Squeeze", "ExpandDims", "Shape", "ShapeN", "Size", "Rank", "NoOp", "ControlTrigger",
    "BroadcastGradientArgs", "BroadcastArgs",
})  # fmt: skip
"""Kernels that TensorFlow declares inexpensive."""

CHEAP_TIME = 1e-6
"""Seconds for a cheap kernel: all of it is the executor's own work."""
OP_TIME = 5e-6
"""Seconds that any other op takes for itself."""
FLOPS = 4e10
"""Multiplications and additions a second in a matrix product or convolution."""
HALF_FLOPS = 4e8
"""The same in float16, which CPUs compute in software."""
BYTES = 5e9
"""Bytes a second that an op reads and writes."""
WAKE_TIME = 5e-5
"""Seconds until an idle thread notices that there is work, at most."""
FASTEST, SLOWEST = 0.5, 1.5
"""How a duration varies from run to run: other processes, caches, what the other thread does."""
STALL_EVERY, STALL_TIME = 1e-2, 5e-3
"""Seconds between the moments when the system gives a thread's core to another, and until it gives it back."""

_IDLE = -1


class Executor:
    """A Program at one batch size, ready to be run many times."""

    def __init__(self, program: Program, batch: int, twins: Sequence[int] | None = None) -> None:
        """`twins`: see `lowtide.simulate.unroll.Unrolled`."""
        self._cost = durations(program, batch)
        self._cheap = [op.kind in CHEAP for op in program.ops]
        self._edges = Edges(program, twins)

    def process(self, random: Random) -> Process:
        """A process that is about to run the step a number of times."""
        return Process(self._edges.of_process(random), self._cost, self._cheap, random)

    def run(self, random: Random) -> list[int]:
        """One step of a process of its own: an op's index where it starts, `~index` where it is done."""
        return self.process(random).step()


class Process:
    """The order of edges is the same in every step of a process and another in the next process."""

    def __init__(self, graph: Graph, cost: Sequence[float], cheap: Sequence[bool], random: Random) -> None:
        self._graph, self._cost, self._cheap, self._random = graph, cost, cheap, random

    def step(self) -> list[int]:
        """One step: an op's index where it starts, `~index` where it is done."""
        waiting, readers, roots = self._graph
        return _Run(self._cost, self._cheap, waiting, readers, self._random).events(roots)


class _Run:
    def __init__(
        self,
        cost: Sequence[float],
        cheap: Sequence[bool],
        waiting: Sequence[int],
        followers: Sequence[Sequence[int]],
        random: Random,
    ) -> None:
        self._cost, self._cheap, self._followers, self._random = cost, cheap, followers, random
        self._waiting = list(waiting)
        self._events: list[int] = []
        self._inline: list[deque[int]] = [deque() for _ in range(THREADS)]
        self._queue: list[deque[int]] = [deque() for _ in range(THREADS)]
        self._agenda: list[tuple[float, int, int]] = []  # when, which thread, the op it will have finished
        self._idle = set(range(1, THREADS))

    def events(self, roots: Sequence[int]) -> list[int]:
        self._dispatch(0.0, 0, roots)
        self._continue(0.0, 0)
        while self._agenda:
            now, thread, op = heappop(self._agenda)
            if op != _IDLE:
                self._finish(now, thread, op)
            self._continue(now, thread)
        return self._events

    def _finish(self, now: float, thread: int, op: int) -> None:
        self._events.append(~op)
        ready, waiting = [], self._waiting
        for follower in self._followers[op]:
            waiting[follower] -= 1
            if not waiting[follower]:
                ready.append(follower)
        if ready:
            self._dispatch(now, thread, ready)

    def _dispatch(self, now: float, thread: int, ready: Sequence[int]) -> None:
        cheap, inline, queue = self._cheap, self._inline[thread], self._queue[thread]
        last = _IDLE
        for op in ready:
            if cheap[op]:
                inline.append(op)
            else:
                if last != _IDLE:
                    queue.appendleft(last)
                last = op
        if last != _IDLE:
            (queue.appendleft if inline else inline.append)(last)
        if queue and self._idle:
            heappush(self._agenda, (now + WAKE_TIME * self._random.random(), self._idle.pop(), _IDLE))

    def _continue(self, now: float, thread: int) -> None:
        """Run cheap ops at once, as long as nobody else has something to do first; then begin one that takes time."""
        inline, agenda = self._inline[thread], self._agenda
        while True:
            op = inline.popleft() if inline else self._take(thread)
            if op == _IDLE:
                self._idle.add(thread)
                return
            self._events.append(op)
            if not self._cheap[op]:
                luck = self._random.random()
                duration = self._cost[op] * (FASTEST + (SLOWEST - FASTEST) * luck)
                if luck < self._cost[op] / STALL_EVERY:
                    duration += STALL_TIME
                heappush(agenda, (now + duration, thread, op))
                return
            now += CHEAP_TIME
            if agenda and agenda[0][0] < now:
                heappush(agenda, (now, thread, op))
                return
            self._finish(now, thread, op)

    def _take(self, thread: int) -> int:
        if self._queue[thread]:
            return self._queue[thread].popleft()
        for other in self._queue:
            if other:
                return other.pop()
        return _IDLE


def durations(program: Program, batch: int) -> list[float]:
    """Seconds that each op may take."""
    values = program.values
    sizes = [value.bytes(batch) for value in values]
    inner = [sum(durations(function, batch)) for function in program.functions]
    result = []
    for op in program.ops:
        rule = rule_at(op, values, batch) or UNKNOWN
        rate = HALF_FLOPS if any(values[v].dtype in _HALVES for v in op.outputs) else FLOPS
        seconds = OP_TIME + _flops(op, values, batch) / rate
        if rule.act not in _MOVES_NOTHING:
            seconds += sum(sizes[v] for v in (*op.inputs, *op.outputs)) / BYTES
        trips = 1 if op.trips is None else op.trips.at(batch)
        result.append(seconds + trips * sum(inner[body] for body in op.bodies))
    return result


_HALVES = frozenset({"half", "float16"})
_MOVES_NOTHING = frozenset({Act.VIEW, Act.READ, Act.SOURCE})
_PRODUCTS = frozenset({"MatMul", "_FusedMatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum"})


def _flops(op: Op, values: Sequence[Value], batch: int) -> float:
    """Twice the multiplications of a product or convolution, its gradients included; other ops do not count."""
    if op.kind in _PRODUCTS and len(op.inputs) > 1:
        rows_inner, inner_columns, rows_columns = (
            values[v].elements(batch) for v in (op.inputs[0], op.inputs[1], op.outputs[0])
        )
        return 2.0 * sqrt(rows_inner * inner_columns * rows_columns)
    if "Conv2D" in op.kind or "Conv3D" in op.kind or "Conv2d" in op.kind:
        return _convolution(op, values, batch)
    return 0.0


def _convolution(op: Op, values: Sequence[Value], batch: int) -> float:
    """The filter without its output channels, at every place of the image that is made or came back."""
    if "BackpropFilter" in op.kind:
        kernel, image = values[op.outputs[0]], values[op.inputs[2]]
    elif "BackpropInput" in op.kind:
        kernel, image = values[op.inputs[1]], values[op.inputs[2]]
    else:
        kernel, image = values[op.inputs[1]], values[op.outputs[0]]
    if kernel.shape is None:
        return 0.0
    depthwise = op.kind.startswith("Depthwise")
    taps = prod(dim.at(batch) for dim in kernel.shape[: -2 if depthwise else -1])
    return 2.0 * taps * image.elements(batch)
