"""An abstract TensorFlow executor: runs a Program in a given order on buffers without contents.

The rules are those of the real one. A tensor is a reference to a buffer; each edge to an op that has not run holds one
reference; a buffer is freed with its last reference, right after the op that dropped it. An op may take over the
buffer of an input when it holds the only reference. Variables, constants and arguments are held by someone else for
the whole step. Tensor lists hold references to their elements. Loop bodies run once a trip.

What is known to be inexact: a buffer's few bytes of bookkeeping for strings and variants, and kernels whose scratch
is not in `lowtide.ops`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from lowtide.errors import LowtideError
from lowtide.ops import ANY_INPUT, Act, is_lowered, sure_arm
from lowtide.program import Op, Program
from lowtide.simulate.buffers import ALWAYS, NOWHERE, Compiled, Trace, copied_on_read
from lowtide.simulate.lists import TensorLists, room_in


def run(
    program: Program, batch: int, order: Sequence[int] | None = None, steps: int = 1, arms: Sequence[int] = (0,)
) -> list[Trace]:
    """Execute the Program `steps` times in `order` (default: as listed) and tell what it did to memory each time.

    `arms`: which branch each step takes, over and over; 0 is the one with most bytes. () is as the ops themselves say.
    """
    machine = _Machine(program, batch, arms)
    sequence = range(len(program.ops)) if order is None else order
    return [machine.step(sequence) for _ in range(steps)]


def run_overlapped(program: Program, batch: int, steps: Iterable[Sequence[int]]) -> Iterator[Trace]:
    """Execute the Program once for each of `steps`: an op's index where it starts, `~index` where it is done.

    The first begins with the variables as they lie: some may share a buffer until they are updated.
    """
    machine = _Machine(program, batch, as_they_lie=True)
    return (machine.step(events, overlapped=True) for events in steps)


Parts = dict[int, tuple[int, int]]
"""The part of the log, from moment to moment, that each op wrote, by its index."""


class Watched(NamedTuple):
    """A step, and what each op of the outermost Program did in it; what those of a loop's body did in each trip, by the
    number of its function; and the bytes that each tensor list held, by the value that it is."""

    trace: Trace
    parts: Parts
    trips: dict[int, list[Parts]]
    held: dict[int, int]


def run_watched(program: Program, batch: int, order: Sequence[int]) -> Watched:
    return _Machine(program, batch).watched_step(order)


def programs_of(program: Program) -> list[Program]:
    """The Program and its bodies, in the order that the first element of `Trace.maker` counts them."""
    registry = [program]
    Compiled(program, 1, 0, registry)
    return registry


class _Machine(TensorLists):
    def __init__(
        self, program: Program, batch: int, arms: Sequence[int] = (0,), as_they_lie: bool = False
    ) -> None:
        super().__init__(batch)
        self._arms_in_turn = arms
        self._main = Compiled(program, batch, 0, [program])
        self._lingering: list[int] = []
        self._turn = 0
        self._variables: dict[int, int] = {}
        self._owners: dict[int, tuple[int, int]] = {}
        self._copied_on_read = {_handle(value) for value in copied_on_read(program)}
        self._constants: dict[tuple[int, int], int] = {}  # (path, value) -> buffer
        self._has_constants: set[int] = set()
        self._place_residents(program, as_they_lie)
        self._place_constants(self._main)
        self._acts = {
            Act.FRESH: self._fresh,
            Act.COMPILED: self._compiled,
            Act.VIEW: self._view,
            Act.VIEW_EACH: self._view_each,
            Act.REUSE: self._reuse,
            Act.SOURCE: self._source,
            Act.NOTHING: self._fresh,
            Act.READ: self._read,
            Act.ASSIGN: self._assign,
            Act.UPDATE: self._update,
            Act.LIST_NEW: self._list_new,
            Act.LIST_ZEROS: self._list_zeros,
            Act.LIST_ADD: self._list_add,
            Act.LIST_SPLIT: self._list_split,
            Act.LIST_PUT: self._list_put,
            Act.LIST_POP: self._list_pop,
            Act.LIST_GET: self._list_get,
            Act.WRAP: self._wrap,
            Act.UNWRAP: self._unwrap,
            Act.CONTROL_FLOW: self._control_flow,
        }

    def _place_residents(self, program: Program, as_they_lie: bool) -> None:
        """Variables and captured tensors, then the batch.

        An optimizer that is built while a function is traced has its slots set by a graph of their own, where zeros of
        one shape are one tensor.
        """
        self._arguments: dict[int, int] = {}
        chunks = {(c.address, c.requested) for c in program.chunks or () if c.in_use} if as_they_lie else set()
        shared: dict[int, int] = {}
        for index, resident in enumerate(program.residents):
            if resident.address in shared and (resident.address, resident.bytes) in chunks:
                buffer = shared[resident.address]
                self._hold([buffer])
            else:
                buffer = self._place(resident.bytes, (-1, index))
                if resident.address is not None:
                    shared[resident.address] = buffer
            if program.values[resident.value].dtype == "resource":
                self._variables[_handle(resident.value)] = buffer
                self._owners[_handle(resident.value)] = (-1, index)
            else:
                self._arguments[resident.value] = buffer
        for position, value in enumerate(program.inputs):
            if value not in self._arguments and program.values[value].dtype != "resource":
                self._arguments[value] = self._place(program.values[value].bytes(self._batch), (-2, position))

    def _place_constants(self, code: Compiled) -> None:
        """Constants, and what is computed from them alone and needed by others.

        Those of a body come when it first runs; of an op that is lowered, with those outside.
        """
        self._has_constants.add(code.path)
        ops = code.program.ops
        needed = {v for i, op in enumerate(ops) if i not in code.folded for v in op.inputs} | {*code.program.outputs}
        for index, op in enumerate(ops):
            if op.kind == "Const" or index in code.folded:
                for value in op.outputs:
                    size = code.bytes[value] if value in needed or op.kind == "Const" else 0
                    self._constants[code.path, value] = self._place(size, (code.path, index)) if size else NOWHERE
                    self._room[self._constants[code.path, value]] = room_in(op)
        for body in sorted(code.lowered):
            self._place_constants(code.functions[body])

    # --- a step ---

    def step(self, order: Sequence[int], overlapped: bool = False) -> Trace:
        """`overlapped`: `order` has an index where an op starts and its complement `~index` where it is done."""
        kept = sorted(b for b, refs in enumerate(self._refs) if refs)
        first = self._compact(kept)
        where = {value: _handle(value) for value in self._main.program.inputs} | self._arguments
        results = self._run(self._main, order, where, held=True, overlapped=overlapped)
        self._let_go()
        for buffer in results:
            self._release(buffer)
        self._turn += 1
        return Trace(
            list(self._bytes), list(self._start), list(self._stop), list(self._maker),
            set(self._scratch_buffers), list(self._log), list(self._taken), first,
        )  # fmt: skip

    def watched_step(self, order: Sequence[int]) -> Watched:
        parts: Parts = {}
        trips: dict[int, list[Parts]] = {}
        held: dict[int, int] = {}
        loops = [op for op in self._main.program.ops if op.trips is not None]
        bodies = {self._main.functions[op.bodies[1]].path: op.bodies[1] for op in loops}
        in_turn = self._in_turn

        def one_by_one(code: Compiled, indices: Sequence[int], where: dict[int, int]) -> None:
            if code.path in bodies:
                written: Parts = {}
                trips.setdefault(bodies[code.path], []).append(written)
            elif code is self._main:
                written = parts
            else:
                in_turn(code, indices, where)
                return
            for index in indices:
                start = len(self._log)
                in_turn(code, (index,), where)
                written[index] = (start, len(self._log))
                for value in code.program.ops[index].outputs if code is self._main else ():
                    contents = self._contents.get(where[value])
                    if contents is not None:
                        held[value] = self._bytes[where[value]] + sum(self._bytes[b] for b in set(contents) if b >= 0)

        self._in_turn = one_by_one  # type: ignore[method-assign,assignment]  # for this step only
        try:
            return Watched(self.step(order), parts, trips, held)
        finally:
            self._in_turn = in_turn  # type: ignore[method-assign]

    def _compact(self, kept: Sequence[int]) -> int:
        """Renumber what is alive so that a step's trace starts with it."""
        number = {old: new for new, old in enumerate(kept)}
        self._bytes = [self._bytes[b] for b in kept]
        self._refs = [self._refs[b] for b in kept]
        self._maker = [self._maker[b] for b in kept]
        self._start = [ALWAYS] * len(kept)
        self._stop = [ALWAYS] * len(kept)
        for _, buffer, who in self._taken:
            if buffer in number:
                self._maker[number[buffer]] = who
        self._log, self._taken = [], []
        self._reads = {}
        self._scratch_buffers = set()
        self._variables = {k: number[b] for k, b in self._variables.items()}
        self._constants = {k: number.get(b, NOWHERE) for k, b in self._constants.items()}
        self._room = {number[b]: room for b, room in self._room.items() if b in number}
        self._arguments = {k: number[b] for k, b in self._arguments.items()}
        return len(kept)

    def _run(
        self, code: Compiled, order: Sequence[int], where: dict[int, int], held: bool, overlapped: bool = False
    ) -> list[int]:
        """Run a body whose arguments are in `where`; returns its outputs, one reference each.

        `held`: the caller keeps its own reference to each argument; otherwise the body consumes it.
        """
        if code.path not in self._has_constants:
            self._place_constants(code)
        uses, refs = code.uses, self._refs
        for value, buffer in where.items():
            if buffer >= 0:
                refs[buffer] += uses[value] + (0 if held else -1)
                if not refs[buffer]:
                    self._free(buffer)
        (self._overlapped if overlapped else self._in_turn)(code, order, where)
        return [where[value] for value in code.program.outputs]

    def _in_turn(self, code: Compiled, order: Sequence[int], where: dict[int, int]) -> None:
        ops, rules, scratch, acts = code.program.ops, code.rules, code.scratch, self._acts
        uses, release, first, held = code.uses, self._release, code.scratch_first, code.held
        for index in order:
            op = ops[index]
            act = acts[rules[index].act]
            copies = [self._take_scratch(size, (code.path, index)) for size in first[index]] if index in first else ()
            act(code, index, op, where)
            if scratch[index]:
                release(self._take_scratch(scratch[index], (code.path, index)))
            for copy in copies:
                release(copy)
            for value in held[index]:
                release(where[value])
            for value in op.outputs:
                if not uses[value]:
                    self._drop_unused(where[value])

    def _overlapped(self, code: Compiled, events: Sequence[int], where: dict[int, int]) -> None:
        """As `_in_turn` with several ops under way at once: one has its outputs and scratch from its start, and holds
        its inputs until it is done."""
        ops, rules, scratch, acts, uses = code.program.ops, code.rules, code.scratch, self._acts, code.uses
        in_use: dict[int, list[int]] = {}
        for event in events:
            if event >= 0:
                taken = [self._take_scratch(size, (code.path, event)) for size in code.scratch_first.get(event, ())]
                acts[rules[event].act](code, event, ops[event], where)
                if scratch[event] and event not in code.folded:
                    taken.append(self._take_scratch(scratch[event], (code.path, event)))
                if taken:
                    in_use[event] = taken
                continue
            index = ~event
            op = ops[index]
            for buffer in in_use.pop(index, ()):
                self._release(buffer)
            for value in code.held[index]:
                self._release(where[value])
            for value in op.outputs:
                if not uses[value]:
                    self._drop_unused(where[value])

    def _drop_unused(self, buffer: int) -> None:
        if buffer >= 0 and not self._refs[buffer] and self._stop[buffer] == ALWAYS:
            self._free(buffer)

    def _take_scratch(self, size: int, maker: tuple[int, int]) -> int:
        buffer = self._allocate(size, maker)
        self._scratch_buffers.add(buffer)
        self._refs[buffer] = 1
        return buffer

    # --- one method an Act: (code, index, op, where) ---

    def _view(self, code: Compiled, index: int, op: Op, where: dict[int, int]) -> None:
        buffer = where[op.inputs[code.rules[index].inputs[0]]]
        for value in op.outputs:
            self._give(code, where, value, buffer)

    def _view_each(self, code: Compiled, index: int, op: Op, where: dict[int, int]) -> None:
        for source, value in zip(op.inputs, op.outputs, strict=True):
            self._give(code, where, value, where[source])

    def _reuse(self, code: Compiled, index: int, op: Op, where: dict[int, int]) -> None:
        rule, values = code.rules[index], code.program.values
        target = op.outputs[rule.output]
        candidates = op.inputs if rule.inputs == ANY_INPUT else [op.inputs[i] for i in rule.inputs]
        for value in op.outputs:
            buffer = NOWHERE
            if value == target:
                for source in candidates:
                    at = where[source]
                    if (
                        at >= 0
                        and self._refs[at] == 1
                        and code.elements[source] == code.elements[target]
                        and values[source].dtype == values[target].dtype
                    ):
                        buffer = at
                        self._taken.append((len(self._log), at, (code.path, index)))
                        break
            if buffer < 0:
                buffer = self._allocate(code.bytes[value], (code.path, index))
            self._give(code, where, value, buffer)

    def _source(self, code: Compiled, index: int, op: Op, where: dict[int, int]) -> None:
        for value in op.outputs:
            if value in where:
                continue  # an argument: the caller placed it
            if (code.path, value) in self._constants:
                self._give(code, where, value, self._constants[code.path, value])
            else:
                where[value] = _handle(value)

    def _read(self, code: Compiled, index: int, op: Op, where: dict[int, int]) -> None:
        handle = where[op.inputs[0]]
        buffer = self._variables.get(handle)
        if buffer is None or handle in self._copied_on_read:
            self._fresh(code, index, op, where)
        else:
            self._give(code, where, op.outputs[0], buffer)

    def _assign(self, code: Compiled, index: int, op: Op, where: dict[int, int]) -> None:
        """The variable becomes another holder of its new value's buffer: nothing is copied."""
        handle, source = where[op.inputs[0]], where[op.inputs[1]]
        if source < 0:
            return
        self._refs[source] += 1
        self._taken.append((len(self._log), source, self._owners.get(handle, (code.path, index))))
        old, self._variables[handle] = self._variables.get(handle, NOWHERE), source
        self._release(old)

    def _update(self, code: Compiled, index: int, op: Op, where: dict[int, int]) -> None:
        for value in op.inputs:
            handle = where[value]
            buffer = self._variables.get(handle, NOWHERE) if handle < NOWHERE else NOWHERE
            if buffer >= 0 and self._refs[buffer] > 1:
                self._replace_variable(handle, self._bytes[buffer], (code.path, index))
        for value in op.outputs:
            where[value] = NOWHERE

    def _replace_variable(self, handle: int, size: int, maker: tuple[int, int]) -> None:
        old = self._variables.get(handle, NOWHERE)
        buffer = self._allocate(size, maker)
        if buffer >= 0:
            self._refs[buffer] = 1
        self._variables[handle] = buffer
        self._taken.append((len(self._log), buffer, self._owners.get(handle, maker)))
        self._release(old)

    # --- bodies ---

    def _control_flow(self, code: Compiled, index: int, op: Op, where: dict[int, int]) -> None:
        if op.trips is not None:
            self._loop(code, op, where)
        elif op.kind.endswith("While"):
            raise LowtideError(
                f"{op.kind} {op.name}: trip count unknown, it depends on the data; "
                "the command `lowtide predict` tries such a step out in a process of its own"
            )
        else:
            self._call(code, op, where)

    def _loop(self, code: Compiled, op: Op, where: dict[int, int]) -> None:
        """A loop that is lowered hands on what it is given and what it makes. The loop kernel holds its inputs until it
        is done, and drops its own hold on the results only when its thread gets back to it: when the next op that
        waits for a body is started, or the step is over."""
        assert op.trips is not None
        cond, body = (code.functions[i] for i in op.bodies)
        state = [where[value] for value in op.inputs]
        if not is_lowered(op):
            self._hold(state)
            self._let_go()
        for trip in range(op.trips.at(self._batch) + 1):
            for buffer in self._run(cond, range(len(cond.program.ops)), _bind(cond, state), held=True):
                self._release(buffer)
            if trip == op.trips.at(self._batch):
                break
            state = self._run(body, range(len(body.program.ops)), _bind(body, state), held=False)
        for value, buffer in zip(op.outputs, state, strict=True):
            self._give(code, where, value, buffer)
        if is_lowered(op):
            for buffer in state:
                self._release(buffer)
        else:
            self._let_go()  # what loops in the body left
            self._lingering = state

    def _let_go(self) -> None:
        lingering, self._lingering = self._lingering, []
        for buffer in lingering:
            self._release(buffer)

    def _call(self, code: Compiled, op: Op, where: dict[int, int]) -> None:
        """A call, or one of the branches; what those that are lowered are given is theirs."""
        body = code.functions[op.bodies[self._arm(code, op)]]
        skipped = len(op.inputs) - len(body.program.inputs)
        given = [where[value] for value in op.inputs]
        if is_lowered(op):
            for buffer in given[:skipped]:
                self._release(buffer)
        held = not is_lowered(op)
        results = self._run(body, range(len(body.program.ops)), _bind(body, given[skipped:]), held)
        for value, buffer in zip(op.outputs, results, strict=True):
            if held or code.uses[value]:
                self._give(code, where, value, buffer)
                self._release(buffer)
            else:
                where[value] = NOWHERE

    def _arm(self, code: Compiled, op: Op) -> int:
        """The branch that this step takes."""
        if (sure := sure_arm(op)) is not None:
            return sure
        if not self._arms_in_turn:
            return op.turns[self._turn % len(op.turns)]
        arms = code.arms[op.inputs[0]]
        return arms[self._arms_in_turn[self._turn % len(self._arms_in_turn)] % len(arms)]


def _bind(code: Compiled, state: Sequence[int]) -> dict[int, int]:
    return dict(zip(code.program.inputs, state, strict=True))


def _handle(value: int) -> int:
    """Resource handles are numbered below the buffers: one for each handle value of the outermost Program."""
    return -2 - value
