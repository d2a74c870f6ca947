"""What a refusal offers is computed: the batch it names fits, the bytes it names are there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lowtide.plan.offers import OF_ACTIVATIONS, largest_batch_within, offers
from lowtide.program import Chunk, Dim, Program, Value
from lowtide.simulate import simulate
from tests.plan.test_plan import step_of_layers


@pytest.mark.parametrize("share", [0.9, 0.5, 0.2])
def test_the_batch_offered_is_the_largest_that_fits(share: float) -> None:
    program = step_of_layers(6)
    timeline = simulate(program, 40)
    room = int(share * timeline.chunk_peak)
    batch = largest_batch_within(program, timeline, room)
    assert simulate(program, batch).chunk_peak <= room
    assert simulate(program, batch + 1).chunk_peak > room


def test_no_batch_is_offered_where_none_fits_or_none_can_be_chosen() -> None:
    program = step_of_layers(6)
    timeline = simulate(program, 4)
    assert largest_batch_within(program, timeline, simulate(program, 1).chunk_peak - 1) == 0
    fixed = replace(program, values=tuple(Value("float32", (Dim(65536),)) for _ in program.values))
    assert largest_batch_within(fixed, simulate(fixed, 4), timeline.chunk_peak // 2) == 0


def half(program: Program) -> Program:
    return replace(program, values=tuple(replace(value, dtype="float16") for value in program.values))


def test_sixteen_bits_are_offered_for_the_activations_at_the_peak_unless_they_have_them_already() -> None:
    program = step_of_layers(6)
    timeline = simulate(program, 4)
    (said,) = (line for line in offers(program, timeline, 0) if "16 bits" in line)
    alive = sum(b.bytes for b in timeline.alive_at(timeline.peak_at) if b.category in OF_ACTIVATIONS)
    assert f"{alive / 2 / 2**20:.2f} MiB" in said
    beside = replace(program, chunks=(Chunk(0, 1000 * alive, 1000 * alive, True),))
    assert said in offers(beside, simulate(beside, 4), 0)  # however much lies beside the step
    narrow = half(program)
    assert not [line for line in offers(narrow, simulate(narrow, 4), 0) if "16 bits" in line]


def test_what_lies_on_the_device_beside_the_step_is_said() -> None:
    program = step_of_layers(6)
    assert not [line for line in offers(program, simulate(program, 4), 0) if "beside the step" in line]
    data = 64 << 20
    crowded = replace(program, chunks=(Chunk(0, data, data, True),))
    (said,) = (line for line in offers(crowded, simulate(crowded, 4), 0) if "beside the step" in line)
    assert said.startswith("64.00 MiB")
