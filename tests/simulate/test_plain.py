"""The range of a plain run, on Programs small enough to know the answer by hand."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.program import Chunk, Dim, Op, Program, Resident, Value
from lowtide.simulate import simulate, tidy_order
from lowtide.simulate.buffers import Trace
from lowtide.simulate.executor import Executor
from lowtide.simulate.machine import run, run_overlapped
from lowtide.simulate.plain import plain_range
from lowtide.simulate.unroll import loop_backlog, unrolled

KB = 1024
ROW = (Dim(0, 1), Dim(256))  # a kilobyte a sample


class Draft:
    """A Program in the making."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.values: list[Value] = []
        self.inputs: list[int] = []
        self.residents: list[Resident] = []

    def value(self, shape: tuple[Dim, ...] = ROW, dtype: str = "float32") -> int:
        self.values.append(Value(dtype, shape))
        return len(self.values) - 1

    def source(self, shape: tuple[Dim, ...] = ROW, dtype: str = "float32") -> int:
        value = self.value(shape, dtype)
        self.inputs.append(value)
        self.ops.append(Op(f"input{value}", "Placeholder", (), (value,)))
        return value

    def variable(self, shape: tuple[Dim, ...]) -> int:
        handle = self.source((), "resource")
        size = Value("float32", shape).bytes(1)
        self.residents.append(Resident(f"variable{handle}", "parameters", size, handle))
        return handle

    def op(self, kind: str, *inputs: int, shape: tuple[Dim, ...] = ROW) -> int:
        value = self.value(shape)
        self.ops.append(Op(f"{kind}{value}", kind, inputs, (value,)))
        return value

    def update(self, handle: int, gradient: int) -> None:
        self.ops.append(Op(f"update{gradient}", "AssignSubVariableOp", (handle, gradient), (), phase="update"))

    def program(self, *outputs: int, functions: tuple[Program, ...] = ()) -> Program:
        return Program(
            tuple(self.ops), tuple(self.values), tuple(self.inputs), outputs,
            residents=tuple(self.residents), functions=functions, batch=8,
        )  # fmt: skip


def chain(length: int) -> Program:
    """Every op makes a buffer and is done with the one before: two are alive at any time."""
    draft = Draft()
    value = draft.source()
    for _ in range(length):
        value = draft.op("Transpose", value)
    return draft.program(value)


def fork_and_join(branches: int) -> Program:
    draft = Draft()
    start = draft.source()
    parts = [draft.op("Transpose", draft.op("Transpose", start)) for _ in range(branches)]
    return draft.program(draft.op("ConcatV2", *parts, shape=(Dim(0, branches), Dim(256))))


def updates(count: int) -> Program:
    """Gradients of one activation, each for an update of its own."""
    draft = Draft()
    shape = (Dim(256), Dim(256))
    handles = [draft.variable(shape) for _ in range(count)]
    activation = draft.source()
    for handle in handles:
        draft.update(handle, draft.op("MatMul", activation, activation, shape=shape))
    return draft.program(activation)


def summing_loop(trips: int) -> Program:
    """sum += f(x) a number of times, where nothing but the sum makes one trip wait for another."""
    weights, counter = (Dim(64), Dim(64)), ()
    condition = Draft()
    count, _, _ = condition.source(counter, "int32"), condition.source(weights), condition.source()
    condition.op("Less", count, count, shape=())
    body = Draft()
    count, total, x = body.source(counter, "int32"), body.source(weights), body.source()
    after = body.op("AddV2", count, count, shape=counter)
    total = body.op("AddN", total, body.op("MatMul", x, x, shape=weights), shape=weights)
    draft = Draft()
    inputs = (draft.source(counter, "int32"), draft.op("Fill", shape=weights), draft.source())
    outputs = (draft.value(counter, "int32"), draft.value(weights), draft.value())
    draft.ops.append(Op("loop", "While", inputs, outputs, bodies=(0, 1), trips=Dim(trips)))
    functions = (condition.program(len(condition.values) - 1), body.program(after, total, x))
    return draft.program(draft.op("Neg", outputs[1], shape=weights), functions=functions)


PROGRAMS = [chain(1), chain(40), fork_and_join(3), fork_and_join(30), updates(1), updates(50)]


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_low_end_is_below_the_high_end_and_above_the_residents(program: Program) -> None:
    low, high = plain_range(program, 8)
    assert simulate(program, 8).chunk_resident < low * 1.1
    assert low < high <= 1.1501 * low


def test_a_chain_has_one_order_and_its_peak_is_in_the_range() -> None:
    for length in (1, 2, 40):
        low, high = plain_range(chain(length), 8)
        assert low <= simulate(chain(length), 8).chunk_peak <= high


def test_branches_that_all_end_in_one_op_are_all_alive_at_the_end() -> None:
    program = fork_and_join(30)
    low, high = plain_range(program, 8)
    assert low <= simulate(program, 8, tidy_order(program, 8)).chunk_peak <= high


def test_gradients_that_are_used_at_once_do_not_pile_up() -> None:
    """Two threads: at most two gradients and their updates under way, whatever their number."""
    few, many = plain_range(updates(10), 8), plain_range(updates(50), 8)
    gradient = 256 * KB
    variables = 40 * gradient
    assert many.high - few.high < 1.07 * variables + 4 * gradient


def test_the_same_seed_gives_the_same_range() -> None:
    program = fork_and_join(20)
    assert plain_range(program, 8, seed=3) == plain_range(program, 8, seed=3)


def test_a_larger_batch_needs_more() -> None:
    for program in (chain(10), fork_and_join(10)):
        lows = [plain_range(program, batch).low for batch in (1, 4, 16, 64)]
        assert lows == sorted(lows)


@st.composite
def small_programs(draw: st.DrawFn) -> Program:
    draft = Draft()
    known = [draft.source()]
    for _ in range(draw(st.integers(1, 25))):
        kind = draw(st.sampled_from(["Transpose", "Neg", "AddV2", "Reshape"]))
        reads = draw(st.lists(st.sampled_from(known), min_size=2, max_size=2))
        known.append(draft.op(kind, *reads[: 2 if kind == "AddV2" else 1]))
    return draft.program(known[-1])


@given(small_programs(), st.integers(0, 1000))
@settings(max_examples=60, deadline=None)
def test_every_op_starts_once_after_what_it_needs_and_is_done_once(program: Program, seed: int) -> None:
    events = Executor(program, 4).run(Random(seed))
    maker = {value: index for index, op in enumerate(program.ops) for value in op.outputs}
    done: set[int] = set()
    started: set[int] = set()
    for event in events:
        if event < 0:
            done.add(~event)
            continue
        assert event not in started
        started.add(event)
        assert {maker[value] for value in program.ops[event].inputs} <= done
    assert started == done == set(range(len(program.ops)))


@given(small_programs())
@settings(max_examples=60, deadline=None)
def test_ops_that_do_not_overlap_do_what_they_do_in_turn(program: Program) -> None:
    one_by_one = [event for index in range(len(program.ops)) for event in (index, ~index)]
    assert next(run_overlapped(program, 4, [one_by_one])).log == run(program, 4)[0].log


def test_a_loop_written_out_computes_the_same_with_an_op_for_each_trip() -> None:
    program, twins = unrolled(summing_loop(7), 8)
    kinds = [op.kind for op in program.ops]
    assert kinds.count("MatMul") == kinds.count("AddN") == kinds.count("Less") == 7
    assert "While" not in kinds
    assert len({twins[index] for index, op in enumerate(program.ops) if op.kind == "MatMul"}) == 1
    assert all(program.ops[twin].kind == op.kind for twin, op in zip(twins, program.ops, strict=True))
    written_out, folded = simulate(program, 8).peak, simulate(summing_loop(7), 8).peak
    assert folded - 64 * 64 * 4 <= written_out <= folded  # the loop's kernel holds on to the first sum


def test_summands_that_wait_are_counted_where_a_loop_is_too_long_to_be_written_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program = summing_loop(20)
    waiting = 20 * 64 * 64 * 4
    assert loop_backlog(program, 8) == waiting
    low, high = plain_range(program, 8)
    assert high <= 1.1501 * low
    monkeypatch.setattr("lowtide.simulate.unroll.MOST_OPS", 10)
    low, high = plain_range(program, 8)
    assert high > low + waiting


def test_only_so_many_trips_are_under_way_at_once() -> None:
    short, long = plain_range(summing_loop(200), 8), plain_range(summing_loop(800), 8)
    assert long.high <= 1.5 * short.high


def guarded(*tests: str) -> Program:
    """A conditional with a large first branch and a small second one; `tests` lead from the batch to its predicate."""
    def body(*kinds: str) -> Program:
        draft = Draft()
        value = draft.source()
        for kind in kinds:
            value = draft.op(kind, value)
        return draft.program(value)

    draft = Draft()
    x = draft.source()
    predicate = x
    for kind in tests:
        predicate = draft.op(kind, predicate, shape=())
    result = draft.value()
    draft.ops.append(Op("branch", "If", (predicate, x), (result,), bodies=(0, 1)))
    large, small = body("Transpose", "Transpose", "Transpose"), body("Neg")
    return draft.program(draft.op("Transpose", result), functions=(large, small))


@pytest.mark.parametrize(
    ("tests", "taken"),
    [
        (("Greater",), "Transpose"),  # could be either: the larger
        (("IsNan", "Any"), "Neg"),
        (("IsNan", "Any", "LogicalNot"), "Transpose"),
        (("IsFinite", "All"), "Transpose"),
        (("IsFinite", "All", "LogicalNot"), "Neg"),
    ],
)
def test_the_usual_branch_is_written_out_and_waits_for_the_decision(tests: tuple[str, ...], taken: str) -> None:
    program, _ = unrolled(guarded(*tests), 8)
    kinds = [op.kind for op in program.ops]
    assert "If" not in kinds
    assert (taken == "Neg") == ("Neg" in kinds)
    events = Executor(program, 8).run(Random(0))
    inside = kinds.index(taken, kinds.index(tests[-1]))
    assert events.index(~kinds.index(tests[-1])) < events.index(inside)


def test_a_branch_that_is_known_to_be_taken_is_written_out_whatever_its_predicate() -> None:
    program = guarded("IsNan", "Any")
    settled = replace(program, ops=tuple(replace(op, bodies=op.bodies[:1]) for op in program.ops))
    kinds = [op.kind for op in unrolled(settled, 8).program.ops]
    assert "If" not in kinds
    assert "Neg" not in kinds


@pytest.mark.parametrize("known", [False, True])
def test_constants_of_a_branch_that_is_not_taken_are_there_all_the_same(known: bool) -> None:
    """TensorFlow makes the gradient of a weight that a branch does not use a constant zero in that branch."""
    program = guarded("IsFinite", "All")
    arm = Draft()
    arm.source()
    zeros = arm.value()
    arm.ops.append(Op("zeros", "Const", (), (zeros,)))
    program = replace(program, functions=(program.functions[0], arm.program(arm.op("Neg", zeros))))
    if known:
        program = replace(program, ops=tuple(replace(op, bodies=op.bodies[:1]) for op in program.ops))
    constants = [op for op in unrolled(program, 8).program.ops if op.kind == "Const"]
    assert len(constants) == 1, "what is folded is there, not what it was folded from"
    flat = unrolled(program, 8).program
    assert flat.values[constants[0].outputs[0]].bytes(8) == 8 * KB


def test_variables_that_share_a_buffer_part_when_the_first_is_updated() -> None:
    """So the first step makes the copies, wherever there is room by then."""
    shape = (Dim(1024),)
    draft = Draft()
    handles = [draft.variable(shape) for _ in range(3)]
    gradient = draft.op("Fill", draft.source(), shape=shape)
    for handle in handles:
        draft.update(handle, gradient)
    at = [256, 256, 8192]
    residents = tuple(replace(r, address=a) for r, a in zip(draft.residents, at, strict=True))
    chunks = (Chunk(256, 4096, 4096, True), Chunk(8192, 4096, 4096, True))
    program = replace(draft.program(), residents=residents, chunks=chunks)
    strict = [event for index in range(len(program.ops)) for event in (index, ~index)]
    first, second = run_overlapped(program, 8, [strict, strict])
    assert copies(first, program) == 1
    assert copies(second, program) == 0
    unseen = replace(program, chunks=())
    assert copies(next(run_overlapped(unseen, 8, [strict])), unseen) == 0, "an address that is no chunk says nothing"


def copies(trace: Trace, program: Program) -> int:
    """Buffers that an update made."""
    return sum(program.ops[index].kind == "AssignSubVariableOp" for _, index in trace.maker[trace.first :])
