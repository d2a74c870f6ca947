"""An order loosened: however its ops interleave, its peak holds; and without room it stays as it is."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.ops import LOWERING_ATTRIBUTE
from lowtide.program import Dim, Op, Program
from lowtide.simulate import simulate
from lowtide.simulate.interleave import NEAR, Ceiling, Loose, _Anyhow, _with_gates
from lowtide.simulate.machine import run_overlapped
from lowtide.simulate.overlap import IN_LOOPS, loosened, strict
from lowtide.simulate.replay import Replay
from lowtide.simulate.unroll import unrolled
from tests.drafts import KB, Draft, chain, kept_for_backward, random_programs

BATCH = 4
ROOMY = Ceiling(1 << 40)


def order_of(program: Program) -> range:
    return range(len(program.ops))


def most_requested(program: Program, loose: Loose, seed: int) -> int:
    """Replayed by hand from one random interleaving: the most bytes alive at once that the step asked for itself."""
    held = _with_gates(program, order_of(program), loose)
    flat = unrolled(held, BATCH).program if loose.bodies else held
    (trace,) = run_overlapped(flat, BATCH, [_Anyhow(flat).run(Random(seed))])
    live = most = 0
    for buffer, allocated in trace.log:
        live += trace.bytes[buffer] if allocated else -trace.bytes[buffer]
        most = max(most, live)
    return most


@settings(deadline=None)
@given(random_programs(), st.integers(0, 1000))
def test_no_interleaving_requests_more_than_the_order_does(program: Program, seed: int) -> None:
    timeline = simulate(program, BATCH)
    for ceiling in (None, ROOMY):
        loose = loosened(program, BATCH, order_of(program), timeline, ceiling)
        assert most_requested(program, loose, seed) <= timeline.peak - timeline.resident


@settings(deadline=None)
@given(random_programs(), st.integers(0, 1000))
def test_the_strict_order_has_one_interleaving(program: Program, seed: int) -> None:
    held = _with_gates(program, order_of(program), strict(program, order_of(program)))
    started = [event for event in _Anyhow(held).run(Random(seed)) if event >= 0]
    inside = [index for index in started if held.ops[index].kind != "Placeholder"]
    assert inside == sorted(inside)


def with_loop(body: Program, lowered: bool, large: int) -> Program:
    """The body three times over, what it computes of two things being the next trip's two; then `large` kilobytes."""
    inside = Draft()
    inside.ops, inside.values, inside.inputs = list(body.ops), list(body.values), list(body.inputs)
    shapes = [body.values[value].shape for value in body.inputs]
    results = [inside.op("next", "MatMul", body.outputs[0], shape=shape) for shape in shapes]
    draft = Draft()
    given = tuple(draft.argument(shape=shape or ()) for shape in shapes)
    made = tuple(draft.value(shape) for shape in shapes)
    attrs: dict[str, object] = {LOWERING_ATTRIBUTE: True} if lowered else {}
    draft.ops.append(Op("loop", "While", given, made, attrs=attrs, bodies=(0, 1), trips=Dim(3)))
    last = draft.op("large", "MatMul", *made, shape=(Dim(large), Dim(256)))
    condition = Draft()
    state = [condition.argument(shape=shape or ()) for shape in shapes]
    test = condition.program(condition.op("less", "Less", *state, shape=(), dtype="bool"))
    return draft.program(last, functions=[test, inside.program(*results)])


@settings(deadline=None)
@given(random_programs(), st.booleans(), st.sampled_from([1, 20, 60, 100]), st.integers(0, 1000))
def test_inside_loops_no_interleaving_requests_much_more(body: Program, lowered: bool, large: int, seed: int) -> None:
    program = with_loop(body, lowered, large)
    timeline = simulate(program, BATCH)
    loose = loosened(program, BATCH, order_of(program), timeline, ROOMY)
    most = timeline.peak - timeline.resident
    assert most_requested(program, loose, seed) <= most * (1 + IN_LOOPS)
    walled = loosened(program, BATCH, order_of(program), timeline, Ceiling(timeline.chunk_peak, walled=True))
    assert walled == strict(program, order_of(program))


def test_the_ops_of_a_trip_overlap_where_the_peak_is_elsewhere() -> None:
    body = Draft()
    x, y = body.argument("x"), body.argument("y")
    branches = [body.op(f"branch{n}", "MatMul", x, y) for n in range(12)]
    program = with_loop(body.program(body.op("join", "AddN", *branches)), lowered=True, large=100)
    loose = loosened(program, BATCH, order_of(program), simulate(program, BATCH), ROOMY)
    loop = next(n for n, op in enumerate(program.ops) if op.name == "loop")
    held = _with_gates(program, order_of(program), loose)
    trips = _Anyhow(held.functions[1])
    assert list(loose.bodies) == [loop]
    assert trips.run(Random(1)) != trips.run(Random(2))


def test_branches_below_the_peak_may_overlap() -> None:
    """Short branches hang off a tensor larger than all of them: they run in more than one order."""
    draft = Draft()
    large = draft.op("large", "MatMul", draft.argument(), shape=(Dim(0, 64), Dim(256)))
    small = draft.op("small", "MatMul", large)
    branches = [draft.op(f"branch{n}", "MatMul", small) for n in range(20)]
    program = draft.program(draft.op("join", "AddN", *branches))
    for ceiling in (None, ROOMY):
        loose = loosened(program, BATCH, order_of(program), simulate(program, BATCH), ceiling)
        held = _with_gates(program, order_of(program), loose)
        assert _Anyhow(held).run(Random(1)) != _Anyhow(held).run(Random(2))


def test_where_every_op_is_at_the_peak_nothing_is_loosened() -> None:
    """Two large tensors at a time, and each op makes one: there is never room for a third."""
    draft = Draft()
    x = draft.argument()
    for n in range(4):
        draft.op(f"dropped{n}", "MatMul", x)
    program = draft.program(draft.op("last", "MatMul", x))
    assert simulate(program, BATCH).peak == 2 * KB * BATCH
    loose = loosened(program, BATCH, order_of(program), simulate(program, BATCH), ROOMY)
    assert all(before in loose.after[n] for before, n in pairwise(range(1, len(program.ops))))


def test_every_op_has_a_control_edge_or_nothing_before_it() -> None:
    """oneDNN merges some nodes that have none; those with the same edges are kept apart by the rewrite."""
    program = kept_for_backward(12)
    loose = loosened(program, BATCH, order_of(program), simulate(program, BATCH))
    inside = [n for n, op in enumerate(program.ops) if op.kind != "Placeholder"]
    begun = next(i for i, n in enumerate(inside) if loose.after[n])
    assert all(loose.after[n] for n in inside[begun:])


def test_a_variable_changes_only_after_everything_that_looks_at_it() -> None:
    """A view of a read counts: while it is alive, TensorFlow would copy the variable."""
    draft = Draft()
    x = draft.argument()
    handle = draft.variable("w")
    view = draft.op("view", "Reshape", draft.op("read", "ReadVariableOp", handle))
    draft.op("looks", "MatMul", x, view)
    update = draft.effect("update", "AssignSubVariableOp", handle, draft.op("gradient", "MatMul", x))
    program = draft.program(draft.op("large", "MatMul", x, shape=(Dim(0, 64), Dim(256))))
    loose = loosened(program, BATCH, order_of(program), simulate(program, BATCH), ROOMY)
    held = _with_gates(program, order_of(program), loose)
    looks = next(n for n, op in enumerate(program.ops) if op.name == "looks")
    for seed in range(20):
        events = _Anyhow(held).run(Random(seed))
        assert events.index(~looks) < events.index(update)


def test_variables_of_old_keep_the_whole_order() -> None:
    draft = Draft()
    x = draft.argument()
    draft.op("variable", "VariableV2")
    for n in range(3):
        draft.op(f"op{n}", "Neg", x, shape=())
    program = draft.program(x)
    assert loosened(program, BATCH, order_of(program), simulate(program, BATCH), ROOMY) == strict(
        program, order_of(program)
    )


def test_an_allocator_that_refuses_keeps_the_order_strict() -> None:
    program = chain(6)
    timeline = simulate(program, BATCH)
    walled = Ceiling(timeline.chunk_peak, walled=True)
    assert loosened(program, BATCH, order_of(program), timeline, walled) == strict(program, order_of(program))


@settings(deadline=None)
@given(random_programs())
def test_below_a_near_ceiling_what_is_played_has_the_predicted_peak_nearly(program: Program) -> None:
    timeline = simulate(program, BATCH)
    near = Ceiling(int(timeline.chunk_peak * 1.3))
    loose = loosened(program, BATCH, order_of(program), timeline, near)
    if loose == strict(program, order_of(program)):
        return
    held = _with_gates(program, order_of(program), loose)
    traces = list(run_overlapped(held, BATCH, [_Anyhow(held).run(Random(0))]))
    replay = Replay(program, traces[0])
    replay.prepare(timeline.preparation)
    assert abs(replay.step(traces[0]).chunk_peak / timeline.chunk_peak - 1) <= NEAR
