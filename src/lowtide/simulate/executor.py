"""How plain TensorFlow picks its order: a model of its executor and its thread pool, in made-up time.

A thread that finishes an op looks at what has become ready. Cheap kernels it runs itself, first come first served. The
others go to its own queue, newest in front, except the last, which it runs next unless there is something cheap to
do. A thread with nothing to do takes from the front of its own queue, then from the back of another's. Two threads
and kernels whose duration differs from run to run: hence an order that differs from run to run.

TensorFlow learns which kernels are cheap by timing them, but so slowly that in the first ninety steps only those
that say so themselves count: `CHEAP`.

Whom a finished op tells first is in `lowtide.simulate.edges`.

Two ops that run at once share the cores, and each takes nearly twice as long.

Known to be rough: durations. They are flops and bytes over typical rates, times a ratio for the kinds of ops that take
more or less than these say; only their proportions matter. A branch, or a loop that was not written out, counts as one
op, where TensorFlow mixes its ops with those outside. A pair of ops that oneDNN merges is two here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import inf, prod, sqrt
from random import Random
from typing import NamedTuple

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
OP_TIME = 3e-6
"""Seconds that any other op takes for itself."""
FLOPS = 1.3e11
"""Multiplications and additions a second in a matrix product or convolution."""
HALF_FLOPS = 2e10
"""The same in float16, which CPUs compute in software."""
BYTES = 2e10
"""Bytes a second that an op reads and writes."""
SHARED = 0.55
"""How fast an op is while another runs: both use all cores."""
HEAVY = 2e-5
"""Seconds from which on an op uses all cores."""
WAKE_TIME = 3e-5
"""Seconds until an idle thread notices that there is work, at most."""
RATIOS = {
    **dict.fromkeys(("AddN", "RealDiv", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), 0.6),
    **dict.fromkeys(("Mean", "Sum", "Max", "Min", "Prod", "SquaredDifference"), 2.0),
    **dict.fromkeys(("BroadcastTo", "Slice", "StridedSlice"), 2.0),
    **dict.fromkeys(("Transpose", "SelectV2", "Select", "Erf", "Erfc", "Tanh", "Exp", "Softmax"), 2.5),
    **dict.fromkeys(("SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits"), 20.0),
    **dict.fromkeys(
        ("StatelessRandomUniformV2", "StatelessRandomNormalV2", "StatelessTruncatedNormalV2", "RandomUniform",
         "RandomStandardNormal", "TruncatedNormal"),
        20.0,
    ),
}  # fmt: skip
"""By kind, relative to a convolution: rounded ratios of measured to modelled time in the ordered steps of the
benchmark's ResNet50, U-Net and GPT, on two cores that had other work too. Kinds that these steps do not have stand
beside those that do the like."""


class Luck(NamedTuple):
    """How a duration varies from run to run: a factor between two, and how often the core is given away, for how long.

    On a quiet machine that is for a moment only, which still lets small ops overtake one another: `QUIET`. What has to
    hold on any machine is tried with `BUSY`.
    """

    fastest: float
    slowest: float
    stalls: float
    stall_time: float


QUIET = Luck(0.9, 1.15, stalls=0.2, stall_time=3e-5)
BUSY = Luck(0.5, 1.5, stalls=0.1, stall_time=5e-3)

_IDLE = -1


class Executor:
    """A Program at one batch size, ready to be run many times."""

    def __init__(
        self, program: Program, batch: int, twins: Sequence[int] | None = None, luck: Luck = QUIET
    ) -> None:
        """`twins`: see `lowtide.simulate.unroll.Unrolled`."""
        self._luck = luck
        self._cost = durations(program, batch)
        self._cheap = [op.kind in CHEAP for op in program.ops]
        self._edges = Edges(program, twins)

    def process(self, random: Random) -> Process:
        """A process that is about to run the step a number of times."""
        return Process(self._edges.of_process(random), self._cost, self._cheap, random, self._luck)

    def run(self, random: Random) -> list[int]:
        """One step of a process of its own: an op's index where it starts, `~index` where it is done."""
        return self.process(random).step()


class Process:
    """The order of edges is the same in every step of a process and another in the next process."""

    def __init__(
        self, graph: Graph, cost: Sequence[float], cheap: Sequence[bool], random: Random, luck: Luck
    ) -> None:
        self._graph, self._cost, self._cheap, self._random, self._luck = graph, cost, cheap, random, luck

    def step(self) -> list[int]:
        """One step: an op's index where it starts, `~index` where it is done."""
        waiting, readers, roots = self._graph
        return _Run(self._cost, self._cheap, waiting, readers, self._random, self._luck).events(roots)


class _Run:
    def __init__(
        self,
        cost: Sequence[float],
        cheap: Sequence[bool],
        waiting: Sequence[int],
        followers: Sequence[Sequence[int]],
        random: Random,
        luck: Luck,
    ) -> None:
        self._cost, self._cheap, self._followers, self._random, self._luck = cost, cheap, followers, random, luck
        self._waiting = list(waiting)
        self._events: list[int] = []
        self._inline: list[deque[int]] = [deque() for _ in range(THREADS)]
        self._queue: list[deque[int]] = [deque() for _ in range(THREADS)]
        self._threads = [_Thread() for _ in range(THREADS)]

    def events(self, roots: Sequence[int]) -> list[int]:
        self._dispatch(0, roots)
        self._continue(0)
        while (thread := self._next()) is not None:
            op = self._threads[thread].op
            if op >= 0:
                self._finish(thread, op)
            self._continue(thread)
        return self._events

    def _next(self) -> int | None:
        """Let time pass until a thread is done with its op, or notices that there is work."""
        threads = self._threads
        speed = SHARED if sum(thread.heavy for thread in threads) > 1 else 1.0
        first, soonest = None, inf
        for index, thread in enumerate(threads):
            after = thread.left / speed if thread.heavy else thread.left
            if after < soonest:
                first, soonest = index, after
        if first is None:
            return None
        for thread in threads:
            thread.left -= soonest * speed if thread.heavy else soonest
        return first

    def _finish(self, thread: int, op: int) -> None:
        self._events.append(~op)
        ready, waiting = [], self._waiting
        for follower in self._followers[op]:
            waiting[follower] -= 1
            if not waiting[follower]:
                ready.append(follower)
        if ready:
            self._dispatch(thread, ready)

    def _dispatch(self, thread: int, ready: Sequence[int]) -> None:
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
        if queue:
            for sleeper in self._threads:
                if sleeper.left == inf and sleeper is not self._threads[thread]:
                    sleeper.op, sleeper.left = _IDLE, WAKE_TIME * self._random.random()
                    break

    def _continue(self, thread: int) -> None:
        """Begin what the thread does next."""
        inline, state = self._inline[thread], self._threads[thread]
        op = inline.popleft() if inline else self._take(thread)
        state.op, state.heavy = op, False
        if op == _IDLE:
            state.left = inf
            return
        self._events.append(op)
        if self._cheap[op]:
            state.left = CHEAP_TIME
            return
        cost, luck = self._cost[op], self._luck
        state.left = cost * self._random.uniform(luck.fastest, luck.slowest)
        if self._random.random() < luck.stalls:
            state.left += luck.stall_time
        state.heavy = cost > HEAVY

    def _take(self, thread: int) -> int:
        if self._queue[thread]:
            return self._queue[thread].popleft()
        for other in self._queue:
            if other:
                return other.pop()
        return _IDLE


class _Thread:
    """What a thread does (`_IDLE`: nothing) and for how many seconds, if nobody disturbs it; forever if it sleeps."""

    def __init__(self) -> None:
        self.op, self.left, self.heavy = _IDLE, inf, False


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
        result.append(seconds * RATIOS.get(op.kind, 1.0) + trips * sum(inner[body] for body in op.bodies))
    return result


_HALVES = frozenset({"half", "float16"})
_MOVES_NOTHING = frozenset({Act.VIEW, Act.VIEW_EACH, Act.READ, Act.SOURCE, Act.ASSIGN, Act.NOTHING})
_PRODUCTS = frozenset({"MatMul", "_FusedMatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum"})


def _flops(op: Op, values: Sequence[Value], batch: int) -> float:
    """Twice the multiplications of a product or convolution, its gradients included; other ops do not count."""
    if op.kind in _PRODUCTS and len(op.inputs) > 1:
        rows_inner, inner_columns, rows_columns = (
            values[v].elements(batch) for v in (op.inputs[0], op.inputs[1], op.outputs[0])
        )
        return 2.0 * sqrt(rows_inner * inner_columns * rows_columns / _matrices(op, values, batch))
    if "Conv2D" in op.kind or "Conv3D" in op.kind or "Conv2d" in op.kind:
        return _convolution(op, values, batch)
    return 0.0


def _matrices(op: Op, values: Sequence[Value], batch: int) -> int:
    """How many products one op computes."""
    shape = values[op.outputs[0]].shape
    if not op.kind.startswith("Batch") or shape is None:
        return 1
    return max(1, prod(dim.at(batch) for dim in shape[:-2]))


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
