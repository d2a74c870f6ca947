"""What an input pipeline has on the device beside a step: found by its sizes, made anew with each batch, gone at the
end of the data."""

from __future__ import annotations

from random import Random

import pytest

from lowtide.program import Chunk
from lowtide.simulate.bfc import BfcAllocator
from lowtide.simulate.pipeline import Part, Pipeline

BATCH, SAMPLE = 8 * 4096, 4096


def beside(sizes: list[int]) -> tuple[BfcAllocator, dict[int, list[int]]]:
    """An allocator that has these and 1 MiB free, and what is nobody's in it."""
    chunks, address = [], 1 << 40
    for size in sizes:
        chunks.append(Chunk(address, size, size, True))
        address += size
    allocator = BfcAllocator.resumed((*chunks, Chunk(address, 1 << 20, 0, False)), 1 << 30)
    claimable: dict[int, list[int]] = {}
    for chunk in chunks:
        claimable.setdefault(chunk.requested, []).append(chunk.address)
    return allocator, claimable


def test_batches_and_elements_are_known_by_their_sizes() -> None:
    allocator, claimable = beside([BATCH, BATCH, 512, *[SAMPLE] * 20])
    pipeline = Pipeline(allocator, [Part(BATCH, SAMPLE)], claimable)
    assert len(pipeline.ready) == 2
    assert pipeline.elements_to_come == [SAMPLE] * 8
    assert {size: len(left) for size, left in claimable.items() if left} == {512: 1}


@pytest.mark.parametrize("size", [SAMPLE, SAMPLE // 4])
def test_a_batch_more_leaves_as_many_elements(size: int) -> None:
    """Bytes may become numbers of four bytes each only once they are a batch."""
    allocator, claimable = beside([size] * 20)
    pipeline = Pipeline(allocator, [Part(BATCH, SAMPLE)], claimable)
    before = allocator.in_use
    for ready in range(1, 4):
        pipeline.make_batch(Random(ready))
        assert len(pipeline.ready) == ready
        assert allocator.in_use == before + ready * BATCH
    assert pipeline.elements_to_come == [size] * 8


def test_at_the_end_of_the_data_no_element_is_left() -> None:
    allocator, claimable = beside([512, *[SAMPLE] * 20])
    pipeline = Pipeline(allocator, [Part(BATCH, SAMPLE)], claimable)
    pipeline.make_batch(Random(0))
    pipeline.end()
    assert allocator.in_use == 512 + BATCH
    taken = pipeline.take_batch()
    assert len(taken) == 1
    assert pipeline.take_batch() != taken


def test_one_chunk_as_large_as_a_sample_may_be_anything() -> None:
    allocator, claimable = beside([SAMPLE])
    assert not Pipeline(allocator, [Part(BATCH, SAMPLE)], claimable).elements_to_come
    assert claimable == {SAMPLE: [1 << 40]}
