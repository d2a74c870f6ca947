"""A Timeline against a recomputation that shares nothing with the simulator but its buffers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide.errors import BadUse
from lowtide.program import Chunk, Dim, Program, Source
from lowtide.simulate import CATEGORIES, OutOfMemory, Preparation, Steps, Timeline, simulate, tidy_order
from lowtide.simulate.machine import run
from lowtide.simulate.replay import Replay
from tests.drafts import KB, SQUARE, Draft, chain, kept_for_backward, random_programs


def alive_bytes(timeline: Timeline, moment: int) -> int:
    """The O(n) way, one moment at a time."""
    total = 0
    for buffer in timeline.buffers:
        born = buffer.start <= moment
        dead = buffer.stop is not None and buffer.stop <= moment
        total += buffer.bytes if born and not dead else 0
    return total


def walls(timeline: Timeline) -> int:
    """Bytes that the allocator's preparation keeps for good: one byte behind each gap."""
    return sum(count for _, count in timeline.preparation.small_change)


PROGRAMS = [chain(1), chain(30), kept_for_backward(1), kept_for_backward(6)]


def check(timeline: Timeline) -> None:
    moments = range(-1, timeline.end)
    assert timeline.peak == max(alive_bytes(timeline, moment) for moment in moments) + walls(timeline)
    assert timeline.resident == alive_bytes(timeline, -1)
    at_peak = alive_bytes(timeline, timeline.peak_at)
    assert at_peak == sum(buffer.bytes for buffer in timeline.alive_at(timeline.peak_at))
    assert at_peak <= timeline.peak <= timeline.chunk_peak
    assert timeline.resident <= timeline.chunk_resident <= timeline.chunk_peak
    for buffer in timeline.buffers:
        assert buffer.category in CATEGORIES
        assert buffer.stop is None or buffer.start < buffer.stop <= timeline.end
        assert 0 <= buffer.maker < len(timeline.makers)


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("batch", [1, 7, 300])
def test_the_peak_is_what_an_independent_sum_over_the_buffers_gives(program: Program, batch: int) -> None:
    check(simulate(program, batch))
    check(simulate(program, batch, tidy_order(program, batch)))


@given(random_programs(), st.integers(1, 300))
@settings(max_examples=100, deadline=None)
def test_that_holds_for_any_program(program: Program, batch: int) -> None:
    check(simulate(program, batch))


def test_the_op_that_reaches_the_peak_is_named() -> None:
    draft = Draft()
    small = draft.op("small", "MatMul", draft.argument())
    large = draft.op("large", "MatMul", small, shape=(Dim(0, 9), Dim(256)), layer="head", source=Source("train.py", 3))
    timeline = simulate(draft.program(draft.op("end", "MatMul", large, shape=SQUARE)), 64)
    assert timeline.makers[timeline.peak_maker][:3] in {("large", "MatMul", "head"), ("end", "MatMul", "")}
    bytes_of = {timeline.makers[b.maker].name: b.bytes for b in timeline.alive_at(timeline.peak_at)}
    assert bytes_of["large"] == 9 * 64 * KB
    assert {m.source for m in timeline.makers if m.name == "large"} == {Source("train.py", 3)}


def test_what_a_buffer_is_for_is_told_from_who_makes_and_who_reads_it() -> None:
    timeline = simulate(kept_for_backward(3), 64)
    kinds: dict[str, set[str]] = {}
    for buffer in timeline.buffers:
        kinds.setdefault(buffer.category, set()).add(timeline.makers[buffer.maker].name)
    assert kinds["parameters"] == {"w0", "w1", "w2"}
    assert kinds["activations"] == {"act0", "act1", "act2"}
    assert kinds["gradients"] == {"w_grad0", "w_grad1", "w_grad2"}
    assert kinds["inputs"] == {"x"}
    assert kinds["temporaries"] == {"loss_grad", "grad0", "grad1", "grad2"}


def test_the_batch_of_the_script_is_the_default() -> None:
    program = chain(2)
    assert simulate(program) == simulate(program, program.batch)


def test_a_limit_that_is_too_low_is_refused_and_says_at_what() -> None:
    program = kept_for_backward(3)
    needed = simulate(program, 64).chunk_peak
    with pytest.raises(OutOfMemory) as error:
        simulate(program, 64, limit=needed // 2)
    assert error.value.limit == needed // 2
    assert error.value.in_use <= needed // 2
    assert "requested" in str(error.value)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_limit_of_twice_the_peak_changes_nothing(program: Program) -> None:
    free = simulate(program, 64)
    assert simulate(program, 64, limit=max(4 << 20, 4 * free.chunk_peak)).peak == free.peak


def test_no_limit_below_the_peak_is_enough() -> None:
    program = kept_for_backward(4)
    peak = simulate(program, 64).peak
    for limit in range(peak // 2, peak, peak // 13):
        with pytest.raises(OutOfMemory):
            simulate(program, 64, limit=limit)


def test_the_devices_own_map_is_resumed_and_what_nobody_claims_is_shown_as_data() -> None:
    """A device that holds w (1 KB), the batch (4 KB) and a data set of 64 KB before the step."""
    draft = Draft()
    w = draft.variable("w", SQUARE)
    weights = draft.op("read", "ReadVariableOp", w, shape=SQUARE)
    program = draft.program(draft.op("a", "MatMul", draft.argument(), weights))
    start, chunks = 1 << 30, []
    for size, in_use in ((KB, True), (4 * KB, True), (64 * KB, True), (2 << 20, False)):
        chunks.append(Chunk(start, size, size, in_use))
        start += size
    timeline = simulate(replace(program, chunks=tuple(chunks)), 4)
    assert timeline.untouched == 64 * KB
    assert timeline.resident == 69 * KB
    (data,) = [b for b in timeline.buffers if timeline.makers[b.maker].kind == "tensors"]
    assert (data.bytes, data.category) == (64 * KB, "inputs")
    check(timeline)


def test_a_program_that_allocates_nothing_has_its_residents_as_peak() -> None:
    draft = Draft()
    weights = draft.op("read", "ReadVariableOp", draft.variable(), shape=SQUARE)
    timeline = simulate(draft.program(draft.op("view", "Reshape", weights, shape=SQUARE)))
    assert timeline.peak == timeline.resident == KB
    assert timeline.end == 0


def test_a_batch_larger_than_any_machine_is_refused_by_its_number() -> None:
    with pytest.raises(BadUse, match="batch 1000000000000: the step would need more than"):
        simulate(chain(2), 10**12)


def test_another_batch_takes_the_place_of_the_scripts_own_on_the_device() -> None:
    draft = Draft()
    program = draft.program(draft.op("a", "MatMul", draft.argument()), batch=4)
    chunks = (Chunk(1 << 30, 4 * KB, 4 * KB, True), Chunk((1 << 30) + 4 * KB, 2 << 20, 2 << 20, False))
    resumed = replace(program, chunks=chunks)
    for batch in (1, 4, 16):
        timeline = simulate(resumed, batch)
        assert timeline.untouched == 0
        assert timeline.peak == simulate(program, batch).peak


def test_gaps_that_are_to_lie_side_by_side_keep_their_size_whatever_holes_there_are() -> None:
    """Behind a hole, the first gap would have no wall on one side and merge with it."""
    (trace,) = run(chain(3), 4)
    start = 1 << 30
    hole, used = Chunk(start, 96 * KB, 0, False), Chunk(start + 96 * KB, KB, KB, True)
    chunks = (hole, used, Chunk(start + 97 * KB, KB * KB, 0, False))
    gaps = ((64 * KB, 3),)
    found = {}
    for side_by_side in (False, True):
        replay = Replay(replace(chain(3), chunks=chunks), trace, sum(chunk.bytes for chunk in chunks))
        replay.prepare(Preparation(gaps, side_by_side=side_by_side))
        found[side_by_side] = replay.free_chunks.count(64 * KB)
    assert found == {False: 2, True: 3}


def test_what_is_set_apart_is_in_use_for_a_moment_and_counts_as_the_peak_that_it_is() -> None:
    (trace,) = run(chain(3), 4)
    replay = Replay(chain(3), trace)
    replay.prepare(Preparation(((512 * KB, 4),)))
    assert replay.prepared_peak >= 4 * 512 * KB > replay.resident


def test_tensors_between_small_change_and_a_size_have_a_gap_each_that_is_alive_at_once() -> None:
    program = kept_for_backward(6)
    steps = Steps(program, 4)
    sizes = {buffer.bytes for buffer in steps.unlimited.buffers}
    assert steps.gaps_up_to(max(sizes)) != ()
    for size in sizes:
        gaps = steps.gaps_up_to(size)
        assert max(gaps, default=0) < size + 256
        assert sum(gaps) <= steps.unlimited.chunk_peak
