"""Buffers without contents, and who holds them: the part of the abstract executor that knows nothing of ops.

A buffer is a number. It is freed with its last reference, and with it go the references it holds itself: tensor lists
hold their elements.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import NamedTuple, TypeVar

from lowtide.ops import (
    OWN_KERNEL,
    SCRATCH_FIRST,
    SCRATCH_OF_OWN_KERNELS,
    UNKNOWN,
    Act,
    Rule,
    is_branching,
    is_lowered,
    rule_at,
    rule_of,
)
from lowtide.program import Op, Program, Value

T = TypeVar("T")

NOWHERE = -1
"""The buffer of a value that has none."""

ALWAYS = -1
"""`stop` of a buffer that outlives the step, `start` of one that was there before it."""


class Trace(NamedTuple):
    """What happened: for each buffer its bytes, moments and maker; `log` has (buffer, allocated) in order.

    Moments count entries of the log. `first` is the number of buffers that were there before the step. `taken` has
    (moment, buffer, who) for each buffer that came to hold something else: an op that reused it, a variable.
    """

    bytes: list[int]
    start: list[int]
    stop: list[int]
    maker: list[tuple[int, int]]
    scratch: set[int]
    log: list[tuple[int, bool]]
    taken: list[tuple[int, int, tuple[int, int]]]
    first: int


class Compiled:
    """A Program at one batch size, unpacked into lists that are quick to walk.

    `held` has the inputs that an op holds until it is done: a loop that is lowered hands its own to the first trip, and
    branches to the one that is taken. `lowered` are the bodies of such ops.
    """

    def __init__(
        self, program: Program, batch: int, path: int, registry: list[Program], outermost: bool = True,
        unread: Container[int] = (),
    ) -> None:  # fmt: skip
        """`outermost`: its ops are among those of the step itself, as are those of an op that is lowered. `unread`: the
        positions of results that nobody takes."""
        self.program = program
        self.path = path
        self.bytes = [value.bytes(batch) for value in program.values]
        self.elements = [value.elements(batch) for value in program.values]
        uses = [0] * len(program.values)
        for op in program.ops:
            for value in op.inputs:
                uses[value] += 1
        for position, value in enumerate(program.outputs):
            uses[value] += position not in unread
        self.uses = uses
        self.rules = [rule_at(op, program.values, batch) or UNKNOWN for op in program.ops]
        self.folded = _folded(program, self.bytes)
        self.scratch = [
            _scratch(op, rule, program.values, batch, inside=not outermost)
            for op, rule in zip(program.ops, self.rules, strict=True)
        ]
        self.scratch_first = {
            index: _in_the_op(SCRATCH_FIRST[op.kind], op, program.values, batch)
            for index, op in enumerate(program.ops)
            if op.kind in SCRATCH_FIRST and index not in self.folded
        }
        for index in self.folded:
            self.rules[index] = FOLDED
            self.scratch[index] = sum(self.bytes[value] for value in program.ops[index].outputs)
        self.held = [() if is_lowered(op) else op.inputs for op in program.ops]
        self.lowered = frozenset(body for op in program.ops if outermost and is_lowered(op) for body in op.bodies)
        untaken = _untaken(program, uses) if outermost else {}
        self.functions = []
        for index, function in enumerate(program.functions):
            registry.append(function)
            self.functions.append(
                Compiled(function, batch, len(registry) - 1, registry, index in self.lowered, untaken.get(index, ()))
            )
        self.arms = _arms(self)


def _untaken(program: Program, uses: Sequence[int]) -> dict[int, set[int]]:
    """By body of lowered branches: the positions of results that nobody outside reads. A function returns them all the
    same, but ops among ops let go of them."""
    found: dict[int, set[int]] = {}
    for op in program.ops:
        if op.trips is None and is_lowered(op):
            unread = {position for position, value in enumerate(op.outputs) if not uses[value]}
            for body in op.bodies:
                found[body] = found.get(body, unread) & unread
    return found


def copied_on_read(program: Program) -> set[int]:
    """Handles of variables that are updated in parts: TensorFlow copies such a variable whenever it is read."""
    found: set[int] = set()
    for op in program.ops:
        if op.kind == _AS_A_WHOLE_AGAIN:
            found.discard(op.inputs[0])
        if op.kind.startswith(_IN_PARTS):
            found.update(value for value in op.inputs if program.values[value].dtype == "resource")
        for index in op.bodies:
            body = program.functions[index]
            given = op.inputs[len(op.inputs) - len(body.inputs) :]
            inside = copied_on_read(body)
            found.update(outer for outer, inner in zip(given, body.inputs, strict=True) if inner in inside)
    return found


_IN_PARTS = ("ResourceScatter", "ResourceSparseApply", "ResourceStridedSliceAssign")
_AS_A_WHOLE_AGAIN = "DisableCopyOnRead"

FOLDED = Rule(Act.SOURCE, recomputable=False)
_LARGEST_FOLDED = 10 << 20


def _folded(program: Program, sizes: Sequence[int]) -> set[int]:
    """Ops that TensorFlow computes once, before the first step, since they depend on constants alone.

    Grappler has folded the small ones already; what is left are large ones, such as a constant gradient spread over a
    weight. Their results are constants from then on. In a fixed order the op itself stays, for the control edges that
    hang on it, and computes once a step what nobody reads; in a plain run it is gone.
    """
    known: set[int] = set()
    folded = set()
    for index, op in enumerate(program.ops):
        if op.kind == "Const":
            known.update(op.outputs)
        elif op.inputs and not op.bodies and known.issuperset(op.inputs):
            rule = rule_of(op.kind)
            small = all(sizes[v] <= _LARGEST_FOLDED for v in op.outputs)
            if rule is not None and rule.recomputable and small and _is_plain(op, rule, program.values):
                known.update(op.outputs)
                folded.add(index)
    return folded


def lasting_constants(program: Program, batch: int) -> list[int]:
    """Ops whose result TensorFlow keeps from before the first step on: constants, and what is folded into one, as far
    as others read them."""
    folded = _folded(program, [value.bytes(batch) for value in program.values])
    read = {v for i, op in enumerate(program.ops) if i not in folded for v in op.inputs} | {*program.outputs}
    return [i for i, op in enumerate(program.ops) if (op.kind == "Const" or i in folded) and read & {*op.outputs}]


def _is_plain(op: Op, rule: Rule, values: Sequence[Value]) -> bool:
    """Of tensor lists, only an empty one can be a constant."""
    return rule.act is Act.LIST_NEW or all(values[v].dtype != "variant" for v in op.outputs)


def _scratch(op: Op, rule: Rule, values: Sequence[Value], batch: int, inside: bool) -> int:
    """`inside`: in the body of a loop or a branch, where oneDNN's graph pass does not come."""
    own = inside or bool(op.attrs.get(OWN_KERNEL))
    scratch = SCRATCH_OF_OWN_KERNELS.get(op.kind, rule.scratch) if own else rule.scratch
    return 0 if scratch is None else _in_the_op(scratch, op, values, batch)


def _in_the_op(count: Callable[..., T], op: Op, values: Sequence[Value], batch: int) -> T:
    """What a row of the tables of scratch buffers says of an op."""
    return count(op, tuple(values[v] for v in op.inputs), tuple(values[v] for v in op.outputs), batch)


def _arms(code: Compiled) -> dict[int, list[int]]:
    """For each value that branches are chosen by, the numbers of the branches, most bytes first.

    A branch of the forward pass and that of its gradient are chosen by the same value, so they go together.
    """
    totals: dict[int, list[int]] = {}
    for op in code.program.ops:
        if is_branching(op):
            total = totals.setdefault(op.inputs[0], [0] * len(op.bodies))
            for arm, body in enumerate(op.bodies[: len(total)]):
                total[arm] += sum(code.functions[body].bytes)
    return {value: sorted(range(len(t)), key=lambda arm: -t[arm]) for value, t in totals.items()}


class Buffers:
    """Every buffer of a run: bytes, references, moments, makers."""

    def __init__(self) -> None:
        self._bytes: list[int] = []
        self._refs: list[int] = []
        self._start: list[int] = []
        self._stop: list[int] = []
        self._maker: list[tuple[int, int]] = []
        self._contents: dict[int, list[int]] = {}
        self._scratch_buffers: set[int] = set()
        self._log: list[tuple[int, bool]] = []
        self._taken: list[tuple[int, int, tuple[int, int]]] = []

    def _allocate(self, size: int, maker: tuple[int, int]) -> int:
        """A new buffer with no references yet; empty tensors have none."""
        if not size:
            return NOWHERE
        buffer = len(self._bytes)
        self._bytes.append(size)
        self._refs.append(0)
        self._start.append(len(self._log))
        self._stop.append(ALWAYS)
        self._maker.append(maker)
        self._log.append((buffer, True))
        return buffer

    def _release(self, buffer: int) -> None:
        if buffer < 0:
            return
        self._refs[buffer] -= 1
        if not self._refs[buffer]:
            self._free(buffer)

    def _free(self, buffer: int) -> None:
        """What a list holds goes first, then the list."""
        for element in self._contents.pop(buffer, ()):
            self._release(element)
        self._stop[buffer] = len(self._log)
        self._log.append((buffer, False))

    def _place(self, size: int, maker: tuple[int, int]) -> int:
        """A buffer that is there before the step and is held for good."""
        buffer = self._allocate(max(size, 1), maker)
        self._refs[buffer] = 1
        return buffer

    def _hold(self, buffers: Sequence[int]) -> None:
        for buffer in buffers:
            if buffer >= 0:
                self._refs[buffer] += 1

    def _give(self, code: Compiled, where: dict[int, int], value: int, buffer: int) -> None:
        """The value lives in `buffer` from here on, with one reference for each edge that will read it."""
        where[value] = buffer
        if buffer >= 0:
            self._refs[buffer] += code.uses[value]

    def _fresh(self, code: Compiled, index: int, op: Op, where: dict[int, int]) -> None:
        maker = (code.path, index)
        for value in op.outputs:
            self._give(code, where, value, self._allocate(code.bytes[value], maker))

    def _compiled(self, code: Compiled, index: int, op: Op, where: dict[int, int]) -> None:
        *results, block = op.outputs
        for value in (*sorted(results, key=lambda value: -code.bytes[value]), block):
            self._give(code, where, value, self._allocate(code.bytes[value], (code.path, index)))
