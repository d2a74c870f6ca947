"""An allocator that cannot grow: what goes through it is replayed, not added up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowtide.errors import Infeasible
from lowtide.ops import LOWERING_ATTRIBUTE
from lowtide.plan import make_plan
from lowtide.plan.room import fit_within, in_one_region, is_all_there_is, resized, smallest_region
from lowtide.program import Chunk, Dim, Op, Program
from lowtide.simulate import OutOfMemory, Steps, simulate
from lowtide.simulate.step import LOOSE_ENDS
from tests.drafts import ROW, Draft
from tests.plan.test_plan import step_of_layers

MIB = 1 << 20


def region(size: int) -> tuple[Chunk, ...]:
    """An allocator of one region, with something of 512 bytes in it."""
    return in_one_region((Chunk(0, 512, 500, True),), size)


def within(program: Program, size: int) -> Program:
    return replace(program, chunks=region(size))


def goes(program: Program, size: int, ahead: int = 0) -> bool:
    return fit_within(Steps(program, 4), region(size), ahead) is not None


def smallest(program: Program, ahead: int = 0) -> int:
    return smallest_region([Steps(within(program, MIB), 4)], ahead, MIB, 40 * MIB)


def test_one_region_has_what_is_in_use_side_by_side_and_the_rest_free() -> None:
    scattered = (Chunk(0, 512, 500, True), Chunk(512, 1024, 0, False), Chunk(1536, 256, 4, True))
    first, second, free = in_one_region(scattered, MIB)
    assert first.address + first.bytes == second.address
    assert second.address + second.bytes == free.address
    assert first.bytes + second.bytes + free.bytes == MIB
    assert (first.requested, second.requested, free.in_use) == (500, 4, False)


def test_an_allocator_of_another_size_has_what_is_in_use_where_it_was() -> None:
    used, hole, data, free = start = (
        Chunk(0, 512, 500, True), Chunk(512, 256, 0, False), Chunk(768, 256, 4, True), Chunk(1024, 1024, 0, False),
    )  # fmt: skip
    assert resized(start, 4096) == (used, hole, data, free._replace(bytes=3072))
    assert resized(start, 1280) == (used, hole, data, free._replace(bytes=256))
    assert resized(start, 1024) == in_one_region(start, 1024), "no free chunk is large enough to be cut"
    two_regions = (used, hole._replace(address=9216))
    assert resized(two_regions, 4096) == in_one_region(two_regions, 4096)


@pytest.mark.parametrize(("size", "limited"), [(100, True), (99, True), (97, False), (101, False)])
def test_an_allocator_is_limited_when_the_budget_is_all_it_has(size: int, limited: bool) -> None:
    assert is_all_there_is((Chunk(0, size * MIB, 0, False),), 100 * MIB) is limited
    assert not is_all_there_is(None, 100 * MIB)


def test_a_step_goes_through_what_is_large_enough_and_not_through_what_is_not() -> None:
    program = step_of_layers(8)
    peak = simulate(program, 4).chunk_peak
    assert goes(program, 2 * peak)
    assert not goes(program, peak // 2)


def test_batches_that_a_pipeline_has_ready_take_their_room() -> None:
    program = step_of_layers(8)
    size = smallest(program)
    assert goes(program, size)
    assert not goes(program, size, ahead=2)
    assert goes(program, size + 4 * MIB, ahead=2)


def test_batches_that_come_in_the_middle_of_a_step_have_a_place_of_their_own() -> None:
    """A small batch in the middle of the free space would part it: the bytes would be there, and no piece of them."""
    layers = step_of_layers(8)
    small = replace(layers.values[0], shape=(Dim(0, 1), Dim(2048)))
    program = replace(layers, values=(small, *layers.values[1:]))
    size = smallest(program, ahead=2)
    assert goes(program, size, ahead=2)
    steps = Steps(program, 4)
    steps.timeline_in(region(size))
    assert not steps.goes_beside_a_pipeline(region(size), (), 2, 1.0)


def test_a_step_that_has_run_goes_on_unless_something_has_taken_its_room() -> None:
    program = step_of_layers(8)
    steps, size = Steps(program, 4), 2 * simulate(program, 4).chunk_peak
    used, free = region(size)
    assert steps.goes_on_beside_a_pipeline((used, free), 0, 1.0)
    piece = MIB // 2
    pieces = [Chunk(free.address + at * piece, piece - 256, 0, False) for at in range(free.bytes // piece)]
    walls = [Chunk(one.address + one.bytes, 256, 1, True) for one in pieces]
    assert not steps.goes_on_beside_a_pipeline(sorted((used, *pieces, *walls)), 0, 1.0)


def test_constants_of_a_branch_are_there_once_it_has_run() -> None:
    wide = (Dim(0, 1), Dim(65536))

    def branch(constant: bool) -> Program:
        draft = Draft()
        x = draft.argument(shape=wide)
        made = draft.op("zeros", "Const", shape=wide) if constant else draft.op("y", "Exp", x, shape=wide)
        return draft.program(made)

    draft = Draft()
    x = draft.argument(shape=wide)
    result = draft.value(wide)
    choice = draft.op("choice", "Any", x, shape=())
    draft.ops.append(Op("branch", "If", (choice, x), (result,), bodies=(0, 1)))
    program = draft.program(result, functions=(branch(constant=True), branch(constant=False)))
    steps, constant = Steps(program, 4), Chunk(1 << 40, MIB, MIB, True)
    batch, rest = constant._replace(address=(1 << 40) + MIB), Chunk((1 << 40) + 2 * MIB, 5 * MIB // 2, 0, False)
    assert steps.goes_on_beside_a_pipeline((constant, batch, rest), 0, 1.0)
    assert not steps.goes_on_beside_a_pipeline((batch, rest._replace(bytes=MIB // 2)), 0, 1.0)


def test_what_another_step_has_set_apart_is_not_set_apart_again() -> None:
    draft = Draft()
    small = [draft.op(f"small{n}", "MatMul", draft.argument(f"x{n}"), shape=(Dim(0, 1), Dim(16))) for n in range(5)]
    steps = Steps(draft.program(*small), 4)
    change = dict(steps.timeline_in(region(MIB)).preparation.small_change)
    assert change
    gaps = [size for size, count in change.items() for _ in range(count)]
    address, there = 1 << 40, []
    for gap in gaps:
        there += [Chunk(address, gap, 0, False), Chunk(address + gap, 256, 1, True)]
        address += gap + 256
    there.append(Chunk(address, MIB, 0, False))
    assert steps.timeline_in(there).preparation.small_change == ()


def test_chunks_may_add_up_to_all_there_is_as_long_as_every_request_finds_one() -> None:
    """The last of seven tensors of 1 MiB in 7.5 gets one and a half: a chunk is not split below twice the request."""
    program = step_of_layers(4)
    size = smallest(program)
    fit = fit_within(Steps(program, 4), region(size), 0)
    assert fit is not None
    assert fit.timeline.peak <= fit.timeline.chunk_peak <= size


@pytest.mark.parametrize("lowered", [True, False])
def test_steps_with_lowered_loops_leave_a_part_alone(lowered: bool) -> None:
    """In a region that the step goes through exactly there is nothing for what a loop's end may do to the pieces."""
    inside = Draft()
    x = inside.argument("x", (Dim(1024), Dim(256)))
    body = inside.program(inside.op("next", "MatMul", x, shape=(Dim(1024), Dim(256))))
    condition = Draft()
    x = condition.argument("x", (Dim(1024), Dim(256)))
    test = condition.program(condition.op("less", "Less", x, x, shape=(), dtype="bool"))
    draft = Draft()
    begun, made = draft.op("begin", "MatMul", draft.argument(), shape=(Dim(1024), Dim(256))), draft.value(ROW)
    attrs: dict[str, object] = {LOWERING_ATTRIBUTE: True} if lowered else {}
    draft.ops.append(Op("loop", "While", (begun,), (made,), attrs=attrs, bodies=(0, 1), trips=Dim(3)))
    program = draft.program(made, functions=[test, body])
    exact = next(size for size in range(MIB, 8 * MIB, 1 << 12) if _goes_exactly(program, size))
    assert goes(program, exact) is not lowered
    assert goes(program, int(exact * (1 + 2 * LOOSE_ENDS)))


def _goes_exactly(program: Program, size: int) -> bool:
    try:
        Steps(program, 4).timeline_in(region(size))
    except OutOfMemory:
        return False
    return True


def test_a_plan_for_an_allocator_that_cannot_grow_goes_through_it() -> None:
    program = step_of_layers(16)
    peak = simulate(program, 4).chunk_peak
    budget = int(0.7 * peak) // 256 * 256
    plan = make_plan(within(program, budget), budget, 4, seconds=3)
    assert fit_within(Steps(plan.program, 4), plan.program.chunks or (), 2) is not None
    assert len(plan.schedule) > len(program.ops)
    with pytest.raises(Infeasible) as refusal:
        make_plan(within(program, 3 * MIB), 3 * MIB, 4, seconds=3)
    smallest = refusal.value.smallest_bytes
    plan = make_plan(within(program, smallest), smallest, 4, seconds=6)
    assert fit_within(Steps(plan.program, 4), plan.program.chunks or (), 2) is not None
