"""The abstract executor on Programs small enough to follow with a pencil.

A story is the log of a step: "+a" where the buffer that op `a` made is allocated, "-a" where it is freed. What was
there before the step is not allocated in it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.errors import LowtideError
from lowtide.ops import LOWERING_ATTRIBUTE
from lowtide.program import Dim, Op, Program
from lowtide.simulate.buffers import Trace
from lowtide.simulate.machine import programs_of, run
from tests.drafts import KB, ROW, SCALAR, SQUARE, Draft, chain, random_programs

BATCH = 4


def story(program: Program, order: list[int] | None = None, step: int = 0) -> str:
    trace = run(program, BATCH, order, step + 1)[step]
    return " ".join(f"{'+' if allocated else '-'}{maker(program, trace, buffer)}" for buffer, allocated in trace.log)


def maker(program: Program, trace: Trace, buffer: int) -> str:
    path, index = trace.maker[buffer]
    if path == -1:
        return program.residents[index].name
    if path == -2:
        return program.ops[[op.outputs[:1] for op in program.ops].index((program.inputs[index],))].name
    return programs_of(program)[path].ops[index].name


def peak(program: Program, order: list[int] | None = None) -> int:
    """The most bytes allocated by the step at one time."""
    trace = run(program, BATCH, order)[0]
    live = most = 0
    for buffer, allocated in trace.log:
        live += trace.bytes[buffer] if allocated else -trace.bytes[buffer]
        most = max(most, live)
    return most


def test_in_a_chain_each_buffer_dies_when_the_next_is_made() -> None:
    assert story(chain(3)) == "+op0 +op1 -op0 +op2 -op1 -op2"
    assert peak(chain(3)) == 2 * BATCH * KB


def test_the_batch_belongs_to_the_caller_and_is_never_freed_or_reused() -> None:
    draft = Draft()
    x = draft.argument()
    assert story(draft.program(draft.op("neg", "Neg", x))) == "+neg -neg"


def test_an_elementwise_op_takes_over_a_buffer_that_nobody_else_needs() -> None:
    draft = Draft()
    a = draft.op("a", "MatMul", draft.argument())
    b = draft.op("b", "Neg", a)
    assert story(draft.program(draft.op("c", "Relu", b))) == "+a -a"


def test_a_buffer_that_is_read_again_later_is_not_taken_over() -> None:
    draft = Draft()
    a = draft.op("a", "MatMul", draft.argument())
    b = draft.op("b", "Neg", a)
    assert story(draft.program(draft.op("c", "AddV2", a, b))) == "+a +b -b -a"


def test_a_buffer_of_another_type_or_size_is_not_taken_over() -> None:
    for shape, dtype in ((ROW, "int32"), (SQUARE, "float32")):
        draft = Draft()
        a = draft.op("a", "MatMul", draft.argument())
        assert story(draft.program(draft.op("b", "Neg", a, shape=shape, dtype=dtype))) == "+a +b -a -b"


def test_the_second_operand_is_taken_over_when_the_first_cannot_be() -> None:
    draft = Draft()
    x = draft.argument()
    a = draft.op("a", "MatMul", x)
    assert story(draft.program(draft.op("sum", "AddV2", x, a))) == "+a -a"


def test_an_op_that_reads_a_value_twice_does_not_take_it_over() -> None:
    draft = Draft()
    a = draft.op("a", "MatMul", draft.argument())
    assert story(draft.program(draft.op("square", "Mul", a, a))) == "+a +square -a -square"


def test_a_view_keeps_the_whole_buffer_alive() -> None:
    draft = Draft()
    a = draft.op("a", "MatMul", draft.argument())
    view = draft.op("view", "Reshape", a)
    b = draft.op("b", "MatMul", a)
    assert story(draft.program(draft.op("c", "MatMul", view, b))) == "+a +b +c -a -b -c"


def test_a_view_of_a_view_with_one_reader_left_can_be_taken_over() -> None:
    draft = Draft()
    a = draft.op("a", "MatMul", draft.argument())
    view = draft.op("v2", "Squeeze", draft.op("v1", "Reshape", a))
    assert story(draft.program(draft.op("b", "Neg", view))) == "+a -a"


def test_in_a_diamond_the_top_lives_until_its_second_reader() -> None:
    draft = Draft()
    top = draft.op("top", "MatMul", draft.argument())
    left = draft.op("left", "MatMul", top)
    right = draft.op("right", "MatMul", top)
    program = draft.program(draft.op("bottom", "MatMul", left, right))
    assert story(program) == "+top +left +right -top +bottom -left -right -bottom"
    assert peak(program) == 3 * BATCH * KB


def test_an_output_that_nobody_reads_is_freed_at_once() -> None:
    draft = Draft()
    x = draft.argument()
    draft.op("unused", "MatMul", x)
    assert story(draft.program(draft.op("a", "MatMul", x))) == "+unused -unused +a -a"


def test_one_unread_output_of_several_goes_and_the_others_stay() -> None:
    draft = Draft()
    x = draft.argument()
    values = draft.value(), draft.value()
    draft.ops.append(Op("split", "TopKV2", (x,), values))
    program = draft.program(draft.op("a", "MatMul", values[1]))
    assert story(program) == "+split +split -split +a -split -a"


def test_an_output_of_the_step_lives_to_its_end() -> None:
    draft = Draft()
    first = draft.op("first", "MatMul", draft.argument())
    second = draft.op("second", "MatMul", first)
    assert story(draft.program(first, draft.op("third", "MatMul", second))).endswith("-second -first -third")


def test_an_empty_tensor_needs_no_buffer() -> None:
    draft = Draft()
    empty = draft.op("empty", "MatMul", draft.argument(), shape=(Dim(0), Dim(9)))
    assert story(draft.program(draft.op("a", "MatMul", empty))) == "+a -a"


def test_constants_are_there_before_the_step_and_are_never_taken_over() -> None:
    draft = Draft()
    one = draft.op("one", "Const", shape=SQUARE)
    program = draft.program(draft.op("a", "Mul", one, draft.argument(shape=SQUARE), shape=SQUARE))
    assert story(program) == "+a -a"
    assert run(program, BATCH)[0].first == 2


def test_what_depends_on_constants_alone_is_computed_once_and_stays() -> None:
    """In a fixed order the op still runs, for nothing."""
    draft = Draft()
    one = draft.op("one", "Const", shape=SQUARE)
    spread = draft.op("spread", "Neg", one, shape=SQUARE)
    program = draft.program(draft.op("a", "Mul", spread, draft.argument(shape=SQUARE), shape=SQUARE))
    assert story(program) == "+spread -spread +a -a"
    assert run(program, BATCH)[0].first == 3


def test_scratch_comes_and_goes_while_the_op_runs() -> None:
    draft = Draft()
    x = draft.argument()
    program = draft.program(draft.op("conv", "Conv2D", x, x))
    trace = run(program, BATCH)[0]
    assert story(program) == "+conv +conv -conv -conv"
    ((scratch,),) = [trace.scratch]
    assert trace.log[1:3] == [(scratch, True), (scratch, False)]


def test_an_order_changes_who_is_alive_with_whom() -> None:
    draft = Draft()
    x = draft.argument()
    ends = []
    for side in "ab":
        wide = draft.op(f"{side}_wide", "MatMul", x, shape=(Dim(0, 4), Dim(256)))
        ends.append(draft.op(f"{side}_end", "MatMul", wide))
    program = draft.program(draft.op("join", "MatMul", *ends))
    assert peak(program) == 6 * BATCH * KB  # one end beside the other branch's wide and its end
    assert peak(program, [0, 1, 3, 2, 4, 5]) == 9 * BATCH * KB  # both wide at once


# --- variables ---


def read_and_update(read_first: bool) -> tuple[Program, list[int]]:
    """w -= w @ x, and an order in which the gradient is, or is not yet, done with w when w changes."""
    draft = Draft()
    w, x = draft.variable(), draft.argument("x", SQUARE)
    weights = draft.op("read", "ReadVariableOp", w, shape=SQUARE)
    gradient = draft.op("gradient", "MatMul", x, shape=SQUARE)
    used = draft.op("used", "MatMul", weights, shape=SQUARE)
    draft.effect("update", "AssignSubVariableOp", w, gradient)
    program = draft.program(used)
    return program, [0, 1, 2, 3, 4, 5] if read_first else [0, 1, 2, 3, 5, 4]


def test_a_variable_whose_read_is_over_is_updated_in_place() -> None:
    assert story(*read_and_update(read_first=True)) == "+gradient +used -gradient -used"


def test_a_variable_with_a_read_alive_is_copied_before_it_changes() -> None:
    # The copy is the variable from then on; the old buffer goes with its reader.
    assert story(*read_and_update(read_first=False)) == "+gradient +update -gradient +used -w -used"


def test_a_copied_variable_is_the_variable_of_the_next_step() -> None:
    program, order = read_and_update(read_first=False)
    traces = run(program, BATCH, order, 3)
    assert [sum(t.bytes[: t.first]) for t in traces] == [2 * KB] * 3
    assert story(program, order, step=2) == "+gradient +update -gradient +used -w -used"


def test_reading_a_variable_allocates_nothing() -> None:
    draft = Draft()
    weights = draft.op("read", "ReadVariableOp", draft.variable(), shape=SQUARE)
    assert story(draft.program(weights)) == ""


def test_assigning_takes_over_the_new_values_buffer_and_lets_the_old_one_go() -> None:
    draft = Draft()
    w = draft.variable()
    new = draft.op("new", "MatMul", draft.argument(), shape=SQUARE)
    draft.effect("assign", "AssignVariableOp", w, new)
    program = draft.program()
    assert story(program) == "+new -w"
    traces = run(program, BATCH, steps=2)
    assert traces[1].first == traces[0].first
    assert story(program, step=1) == "+new -w"


def test_assigning_what_another_op_still_reads_shares_it() -> None:
    draft = Draft()
    w = draft.variable()
    new = draft.op("new", "MatMul", draft.argument(), shape=SQUARE)
    draft.effect("assign", "AssignVariableOp", w, new)
    program = draft.program(draft.op("neg", "Neg", new, shape=SQUARE))
    assert story(program) == "+new -w +neg -neg"


def test_an_optimizer_update_touches_each_variable_it_is_given() -> None:
    draft = Draft()
    w, m = draft.variable("w"), draft.variable("m", category="optimizer state")
    held = draft.op("read_m", "ReadVariableOp", m, shape=SQUARE)
    gradient = draft.op("gradient", "MatMul", draft.argument(), shape=SQUARE)
    draft.effect("adam", "ResourceApplyAdam", w, m, gradient)
    assert story(draft.program(held)) == "+gradient +adam -gradient -m"  # only m was being read


# --- tensor lists and loops ---

LIST = 64
"""Bytes of a list itself."""


def body_of(*state: tuple[str, tuple[Dim, ...], str]) -> tuple[Draft, list[int]]:
    draft = Draft()
    return draft, [draft.argument(name, shape, dtype) for name, shape, dtype in state]


STATE = (("i", SCALAR, "int32"), ("list", SCALAR, "variant"), ("x", ROW, "float32"))


def accumulating_loop(trips: int, pops: bool = False, lowered: bool = False) -> Program:
    """`for _ in range(trips): x = f(x); list.append(x)`, and perhaps a loop back that takes them off again."""
    attrs: dict[str, object] = {LOWERING_ATTRIBUTE: True} if lowered else {}
    condition, (i, _, _) = body_of(*STATE)
    test = condition.program(condition.op("less", "Less", i, i, shape=SCALAR, dtype="bool"))
    forward, (i, kept, x) = body_of(*STATE)
    x = forward.op("f", "MatMul", x)
    kept = forward.op("push", "TensorListPushBack", kept, x, shape=SCALAR, dtype="variant")
    i = forward.op("count", "AddV2", i, i, shape=SCALAR, dtype="int32")
    functions = [test, forward.program(i, kept, x)]
    draft = Draft()
    start, x = draft.argument("i", SCALAR, "int32"), draft.argument("x")
    kept = draft.op("list", "EmptyTensorList", shape=SCALAR, dtype="variant")
    outputs = tuple(draft.value(shape, dtype) for _, shape, dtype in STATE)
    draft.ops.append(Op("loop", "While", (start, kept, x), outputs, attrs=attrs, bodies=(0, 1), trips=Dim(trips)))
    if pops:
        backward, (i, kept, x) = body_of(*STATE)
        popped = backward.value(SCALAR, "variant"), backward.value(ROW)
        backward.ops.append(Op("pop", "TensorListPopBack", (kept,), popped))
        x = backward.op("g", "MatMul", x, popped[1])
        i = backward.op("count", "AddV2", i, i, shape=SCALAR, dtype="int32")
        functions += [test, backward.program(i, popped[0], x)]
        start2 = draft.op("zero", "Const", shape=SCALAR, dtype="int32")
        back = tuple(draft.value(shape, dtype) for _, shape, dtype in STATE)
        given = (start2, outputs[1], outputs[2])
        draft.ops.append(Op("loop_back", "While", given, back, attrs=attrs, bodies=(2, 3), trips=Dim(trips)))
        return draft.program(back[2], functions=functions)
    return draft.program(outputs[1], functions=functions)


@pytest.mark.parametrize("trips", [0, 1, 2, 50])
def test_a_loop_that_keeps_something_of_each_trip_needs_it_times_the_trips(trips: int) -> None:
    program = accumulating_loop(trips)
    trace = run(program, BATCH)[0]
    rows = [size for size in trace.bytes[trace.first :] if size == BATCH * KB]
    assert len(rows) == trips
    # The list that went in, which the loop holds on to; the list inside with its rows; a counter and its successor.
    assert trips * BATCH * KB + LIST <= peak(program) <= trips * BATCH * KB + 2 * LIST + 4 + 4


@pytest.mark.parametrize("trips", [1, 2, 50])
def test_the_loop_back_holds_the_list_it_was_given_until_it_is_done(trips: int) -> None:
    program = accumulating_loop(trips, pops=True)
    # Popping copies the list, not its rows: beside those there are the state of one trip and that of the next.
    states = min(trips, 2)
    rows = (trips + states) * BATCH * KB
    assert rows < peak(program) <= rows + 2 * LIST + 4 + 4
    assert story(program).endswith("-f " * (trips - 1) + "-push -f -count -pop -g")


@pytest.mark.parametrize("trips", [1, 2, 50])
def test_a_lowered_loop_back_frees_each_trip_as_it_goes(trips: int) -> None:
    """Its list is nobody else's, so nothing is copied, and the row of a trip goes with that trip."""
    program = accumulating_loop(trips, pops=True, lowered=True)
    assert (trips + 1) * BATCH * KB <= peak(program) <= (trips + 1) * BATCH * KB + LIST + 4 + 4 + 1
    back = story(program)[story(program).index("+g") :]
    assert [word for word in back.split() if word in ("+g", "-f")] == ["+g", "-f"] * trips
    assert "pop" not in back


@pytest.mark.parametrize("trips", [0, 1, 3])
def test_after_a_lowered_loop_nothing_is_alive_but_what_somebody_reads(trips: int) -> None:
    program = accumulating_loop(trips, pops=True, lowered=True)
    trace = run(program, BATCH, steps=2)[1]
    assert sum(1 if allocated else -1 for _, allocated in trace.log) == 0


def test_the_constants_of_a_lowered_loop_are_there_before_the_step() -> None:
    body, (i,) = body_of(("i", SCALAR, "int32"))
    one = body.op("one", "Const", shape=SCALAR, dtype="int32")
    step = body.program(body.op("count", "AddV2", i, one, shape=SCALAR, dtype="int32"))
    for attrs in ({LOWERING_ATTRIBUTE: True}, {}):
        draft = Draft()
        start, result = draft.argument("i", SCALAR, "int32"), draft.value(SCALAR, "int32")
        draft.ops.append(Op("loop", "While", (start,), (result,), attrs=attrs, bodies=(0, 1), trips=Dim(2)))
        program = draft.program(result, functions=[step, step])
        assert ("+one" in story(program)) is not bool(attrs)
        assert "+one" not in story(program, step=1)


def test_a_popped_element_is_freed_once_read_when_nobody_else_holds_the_list() -> None:
    draft = Draft()
    x = draft.argument()
    kept = draft.op("list", "EmptyTensorList", shape=SCALAR, dtype="variant")
    for name in ("a", "b"):
        row = draft.op(name, "MatMul", x)
        kept = draft.op(f"push_{name}", "TensorListPushBack", kept, row, shape=SCALAR, dtype="variant")
    popped = draft.value(SCALAR, "variant"), draft.value(ROW)
    draft.ops.append(Op("pop", "TensorListPopBack", (kept,), popped))
    program = draft.program(popped[0], draft.op("c", "MatMul", popped[1]))
    assert story(program) == "+list +a +b +c -b -a -list -c"


def test_a_list_that_somebody_else_holds_is_copied_but_not_its_elements() -> None:
    draft = Draft()
    x = draft.argument()
    empty = draft.op("empty", "EmptyTensorList", shape=SCALAR, dtype="variant")
    row = draft.op("row", "MatMul", x)
    one = draft.op("one", "TensorListPushBack", empty, row, shape=SCALAR, dtype="variant")
    two = draft.op("two", "TensorListPushBack", one, row, shape=SCALAR, dtype="variant")
    program = draft.program(one, two)
    assert story(program) == "+empty +row +two -empty -row -two"


def test_an_empty_list_made_of_constants_is_a_constant_that_everybody_copies() -> None:
    """TensorFlow computes it before the first step; the op stays in its place, for nothing."""
    draft = Draft()
    size = draft.op("size", "Const", shape=SCALAR, dtype="int32")
    empty = draft.op("empty", "EmptyTensorList", size, shape=SCALAR, dtype="variant")
    row = draft.op("row", "MatMul", draft.argument())
    program = draft.program(draft.op("push", "TensorListPushBack", empty, row, shape=SCALAR, dtype="variant"))
    for step in range(2):
        assert story(program, step=step) == "+empty -empty +row +push -row -push"


def test_a_list_made_from_a_tensor_copies_its_rows() -> None:
    draft = Draft()
    rows = draft.op("rows", "TensorListFromTensor", draft.argument(), shape=SCALAR, dtype="variant")
    program = draft.program(rows)
    assert story(program) == "+rows" * 1 + " +rows" * BATCH + " -rows" * (BATCH + 1)
    assert peak(program) == BATCH * KB + LIST


def test_reading_a_list_gives_a_view_of_the_element() -> None:
    draft = Draft()
    rows = draft.op("rows", "TensorListFromTensor", draft.argument(), shape=SCALAR, dtype="variant")
    row = draft.op("row", "TensorListGetItem", rows, shape=(Dim(256),))
    assert "row " not in story(draft.program(draft.op("use", "MatMul", row))).replace("rows", "")


def test_a_loop_of_unknown_length_is_refused_by_name() -> None:
    program = accumulating_loop(3)
    ops = tuple(replace(op, trips=None) if op.name == "loop" else op for op in program.ops)
    with pytest.raises(LowtideError, match="While loop: trip count unknown"):
        run(replace(program, ops=ops), BATCH)


def test_a_call_runs_its_body_and_passes_its_result_on() -> None:
    body, (x,) = body_of(("x", ROW, "float32"))
    inner = body.program(body.op("b", "MatMul", body.op("a", "MatMul", x)))
    draft = Draft()
    x = draft.argument()
    result = draft.value()
    draft.ops.append(Op("call", "PartitionedCall", (x,), (result,), bodies=(0,)))
    program = draft.program(draft.op("c", "Neg", result), functions=[inner])
    assert story(program) == "+a +b -a -b"


@given(random_programs(), st.integers(1, 9))
@settings(max_examples=100, deadline=None)
def test_every_buffer_is_freed_once_and_nothing_outlives_a_step_without_variables(program: Program, batch: int) -> None:
    for trace in run(program, batch, steps=2):
        allocated = [buffer for buffer, start in trace.log if start]
        freed = [buffer for buffer, start in trace.log if not start]
        assert sorted(allocated) == sorted(freed) == list(range(trace.first, len(trace.bytes)))


@given(random_programs())
@settings(max_examples=50, deadline=None)
def test_every_step_of_a_program_without_variables_is_the_same(program: Program) -> None:
    first, second, third = run(program, 4, steps=3)
    assert first.log == second.log == third.log


def test_an_optional_value_holds_what_it_wraps_until_it_is_unwrapped_and_used() -> None:
    draft = Draft()
    kept = draft.op("kept", "MatMul", draft.argument())
    wrapped = draft.op("wrapped", "OptionalFromValue", kept, shape=SCALAR, dtype="variant")
    later = draft.op("later", "MatMul", kept)
    again = draft.op("again", "OptionalGetValue", wrapped)
    program = draft.program(draft.op("last", "MatMul", again, later))
    assert story(program) == "+kept +wrapped +later -wrapped +last -kept -later -last"


def test_steps_may_take_other_branches_than_the_one_with_most_bytes() -> None:
    arms = []
    for name, shape in (("small", SQUARE), ("large", ROW)):
        inside = Draft()
        inside.op(name, "MatMul", inside.argument(), shape=shape)
        arms.append(inside.program(inside.op("out", "MatMul", inside.inputs[0], shape=SQUARE)))
    draft = Draft()
    x = draft.argument()
    out = draft.value(SQUARE)
    draft.ops.append(Op("branch", "If", (draft.op("choice", "Any", x, shape=SCALAR), x), (out,), bodies=(0, 1)))
    program = draft.program(out, functions=arms)
    traces = run(program, BATCH, steps=2, arms=(0, 1))
    made = [{maker(program, trace, buffer) for buffer, allocated in trace.log if allocated} for trace in traces]
    assert "large" in made[0] and "small" in made[1]


@pytest.mark.parametrize("lowered", [True, False])
def test_lowered_branches_let_go_of_what_they_are_given_as_they_go(lowered: bool) -> None:
    """One kernel that calls a branch as a function holds all its inputs until that is done."""
    branch = Draft()
    first, second = branch.argument("first"), branch.argument("second")
    for name, read in (("a", first), ("b", second)):
        branch.effect(f"print_{name}", "Print", branch.op(name, "MatMul", read, shape=SQUARE))
    draft = Draft()
    x = draft.argument("x")
    made = [draft.op(name, "MatMul", x) for name in ("one", "two")]
    choice = draft.op("choice", "Any", x, shape=SCALAR, dtype="bool")
    attrs: dict[str, object] = {LOWERING_ATTRIBUTE: True} if lowered else {}
    draft.ops.append(Op("branch", "If", (choice, *made), (), attrs=attrs, bodies=(0, 0)))
    words = story(draft.program(functions=[branch.program()])).split()
    told = [word for word in words if word[1:] in ("one", "two", "b")]
    assert told == ["+one", "+two", *(("-one", "+b", "-two", "-b") if lowered else ("+b", "-b", "-one", "-two"))]


def test_a_branch_with_turns_is_taken_as_they_say_where_no_other_habit_is_asked_for() -> None:
    inside = [Draft(), Draft()]
    bodies = [draft.program(draft.op(f"arm {i}", "MatMul", draft.argument())) for i, draft in enumerate(inside)]
    draft = Draft()
    x = draft.argument()
    out = draft.value(SQUARE)
    choice = draft.op("choice", "Any", x, shape=SCALAR)
    draft.ops.append(Op("branch", "If", (choice, x), (out,), bodies=(0, 1), turns=(1, 1, 0)))
    program = draft.program(out, functions=bodies)
    for arms, expected in (((), [1, 1, 0, 1]), ((1,), [1, 1, 1, 1])):
        traces = run(program, BATCH, steps=4, arms=arms)
        made = [{maker(program, trace, buffer) for buffer, allocated in trace.log if allocated} for trace in traces]
        assert [int("arm 1" in names) for names in made] == expected
