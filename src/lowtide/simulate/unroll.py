"""A Program with its loops and branches written out, for whoever needs to see their ops beside those of another.

Plain TensorFlow runs a loop as ops among ops: an op of the next trip may start as soon as its own inputs are there,
up to `PARALLEL_TRIPS` trips ahead of the slowest. `unrolled` gives each trip its own ops, waiting for one another as
they do there. A branch is ops among ops too, which wait for the decision; of the two the usual one is written out,
see `lowtide.simulate.branches`, and of the other its constants, which are there whether it runs or not. Every other op
keeps its values; numbers of ops change.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from lowtide.ops import TRIPS_AT_ONCE
from lowtide.program import Op, Program, Value
from lowtide.simulate.branches import is_branch, taken_branch
from lowtide.simulate.buffers import lasting_constants

PARALLEL_TRIPS = 32
"""Trips of a Keras recurrence that TensorFlow allows to be under way at once, unless the op says otherwise."""

MOST_OPS = 40_000
"""A Program that would become longer than this keeps its loops."""


class Unrolled(NamedTuple):
    """A Program without loops and branches, and for each of its ops the one that does the same in the first trip: in
    TensorFlow's graph the two are one node."""

    program: Program
    twins: tuple[int, ...]


def unrolled(program: Program, batch: int, largest: bool = True, most_ops: int | None = None) -> Unrolled:
    """The same step written out at this batch size; the Program itself if there is nothing to write out or too much.

    `largest`: whether, of branches of which none is usual, the one with most bytes is taken or that with least.
    """
    most = MOST_OPS if most_ops is None else most_ops
    if not any(_is_loop(op) or is_branch(op) for op in program.ops) or ops_executed(program, batch) > most:
        return Unrolled(program, tuple(range(len(program.ops))))
    writer = _Writer(program, batch, largest)
    where = {value: value for value in range(len(program.values))}
    number = writer.write(program, where, outermost=True)
    flat = replace(
        program,
        ops=tuple(writer.ops),
        values=tuple(writer.values),
        outputs=tuple(where[value] for value in program.outputs),
        keep=tuple(number[index] for index in program.keep if index in number),
        functions=tuple(writer.functions),
    )
    return Unrolled(flat, tuple(writer.twins))


def loop_backlog(program: Program, batch: int) -> int:
    """Bytes of the summands that may be waiting at once, in the loop that leaves the most of them.

    TensorFlow computes them newest first and can add them only oldest first.
    """
    most = 0
    for loop in program.ops:
        if loop.trips is not None:
            body = program.functions[loop.bodies[1]]
            waiting = min(loop.trips.at(batch), _parallel_trips(loop))
            one_trip = sum(body.values[v].bytes(batch) for op in _summands(body) for v in body.ops[op].outputs)
            most = max(most, waiting * one_trip)
    return most


def _parallel_trips(loop: Op) -> int:
    limit = loop.attrs.get(TRIPS_AT_ONCE)
    return limit if isinstance(limit, int) else PARALLEL_TRIPS


def _is_loop(op: Op) -> bool:
    return op.trips is not None


def ops_executed(program: Program, batch: int) -> int:
    """Ops that one step runs: those of a loop count once for each trip."""
    total = sum(op.kind not in _GIVEN for op in program.ops)
    for op in program.ops:
        trips = 1 if op.trips is None else op.trips.at(batch)
        total += trips * sum(ops_executed(program.functions[body], batch) for body in op.bodies)
    return total


_GIVEN = frozenset({"Const", "Placeholder", "_Arg"})


def _summands(body: Program) -> dict[int, int]:
    """Ops of a loop body that only add to what the loop carries, the gradient of a weight trip by trip, and the op
    that adds each."""
    maker = {value: index for index, op in enumerate(body.ops) for value in op.outputs}
    readers: dict[int, int] = {}
    for op in body.ops:
        for value in op.inputs:
            readers[value] = readers.get(value, 0) + 1
    found = {}
    for carried, result in zip(body.inputs, body.outputs, strict=True):
        adds = body.ops[maker[result]]
        if adds.kind in _SUMS and carried in adds.inputs:
            for value in adds.inputs:
                if value != carried and readers[value] == 1 and body.ops[maker[value]].kind not in _GIVEN:
                    found[maker[value]] = maker[result]
    return found


_SUMS = frozenset({"AddN", "AddV2", "Add"})


class _Writer:
    def __init__(self, program: Program, batch: int, largest: bool) -> None:
        self._batch, self._largest = batch, largest
        self.ops: list[Op] = []
        self.values: list[Value] = list(program.values)
        self.functions: list[Program] = list(program.functions)
        self._first_function = {id(program): 0}
        self._constants: dict[tuple[int, int], int] = {}
        self.twins: list[int] = []
        self._first: dict[tuple[int, int], int] = {}

    def write(
        self, part: Program, where: dict[int, int], gate: Sequence[int] = (), outermost: bool = False
    ) -> dict[int, int]:
        """Copy the ops of `part`, whose inputs are at `where`; ops that take an input of it wait for `gate`.

        `where` learns where every value is; the result tells the new number of each op.
        """
        number: dict[int, int] = {}
        gated = frozenset() if outermost else frozenset(part.inputs)
        for index, op in enumerate(part.ops):
            if not outermost and op.kind in ("Placeholder", "_Arg"):
                continue
            if not outermost and op.kind == "Const":
                self._share(part, index, where)
                continue
            after = [number[before] for before in op.after if before in number]
            if not op.inputs or not gated.isdisjoint(op.inputs):
                after += gate
            if _is_loop(op):
                number[index] = self._loop(part, op, where, after)
            elif is_branch(op):
                number[index] = self._branch(part, op, where, after)
            else:
                number[index] = self._copy(part, op, where, after, outermost)
                self.twins[-1] = self._first.setdefault((id(part), index), number[index])
        self._keep_constants_of_arms(part)
        return number

    def _copy(self, part: Program, op: Op, where: dict[int, int], after: Iterable[int], outermost: bool) -> int:
        if not outermost:
            for value in op.outputs:
                where[value] = len(self.values)
                self.values.append(part.values[value])
        return self._emit(
            replace(
                op,
                inputs=tuple(where[value] for value in op.inputs),
                outputs=tuple(where[value] for value in op.outputs),
                after=tuple(after),
                bodies=tuple(self._functions_of(part) + body for body in op.bodies),
            )
        )

    def _share(self, part: Program, index: int, where: dict[int, int]) -> None:
        """A constant is the same tensor in every trip. An op that is folded is one too."""
        op, key = part.ops[index], (id(part), index)
        if key not in self._constants:
            self._constants[key] = len(self.values)
            self.values.append(part.values[op.outputs[0]])
            self._emit(replace(op, kind="Const", inputs=(), outputs=(self._constants[key],), after=()))
        where[op.outputs[0]] = self._constants[key]

    def _keep_constants_of_arms(self, part: Program) -> None:
        """Of the branches that are not taken, those among `part`'s functions that a rehearsal ruled out too."""
        called = {body for op in part.ops if not is_branch(op) for body in op.bodies}
        taken = {taken_branch(part, op, self._batch, self._largest) for op in part.ops if is_branch(op)}
        for index in {*range(len(part.functions))} - called - taken:
            arm = part.functions[index]
            for constant in lasting_constants(arm, self._batch):
                self._share(arm, constant, {})

    def _functions_of(self, part: Program) -> int:
        if id(part) not in self._first_function:
            self._first_function[id(part)] = len(self.functions)
            self.functions.extend(part.functions)
        return self._first_function[id(part)]

    def _loop(self, part: Program, loop: Op, where: dict[int, int], after: list[int]) -> int:
        """Write out the trips; returns the op that is done when all are."""
        assert loop.trips is not None
        condition, body = (part.functions[index] for index in loop.bodies)
        parallel = _parallel_trips(loop)
        state = [where[value] for value in loop.inputs]
        done = [self._wait(loop, after)]
        for _ in range(loop.trips.at(self._batch)):
            start = len(self.ops)
            self.write(condition, dict(zip(condition.inputs, state, strict=True)), done[-parallel:][:1])
            decided = self._wait(loop, range(start, len(self.ops)))
            inside = dict(zip(body.inputs, state, strict=True))
            self.write(body, inside, (decided,))
            state = [inside[value] for value in body.outputs]
            done.append(self._wait(loop, (done[-1], *range(start, len(self.ops)))))
        where.update(zip(loop.outputs, state, strict=True))
        return done[-1]

    def _branch(self, part: Program, op: Op, where: dict[int, int], after: list[int]) -> int:
        """Write out the branch that is taken; returns the op that is done when all of it is."""
        body = part.functions[taken_branch(part, op, self._batch, self._largest)]
        decided = self._wait(op, after, (where[op.inputs[0]],))
        start = len(self.ops)
        inside = dict(zip(body.inputs, (where[value] for value in op.inputs[1:]), strict=True))
        self.write(body, inside, (decided,))
        where.update(zip(op.outputs, (inside[value] for value in body.outputs), strict=True))
        return self._wait(op, (decided, *range(start, len(self.ops))))

    def _wait(self, loop: Op, after: Iterable[int], inputs: tuple[int, ...] = ()) -> int:
        return self._emit(Op(loop.name, "NoOp", inputs, (), tuple(after), phase=loop.phase))

    def _emit(self, op: Op) -> int:
        self.twins.append(len(self.ops))
        self.ops.append(op)
        return len(self.ops) - 1
