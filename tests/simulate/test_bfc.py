"""The allocator's rules one by one, and the model against the same allocator written the O(n^2) way."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowtide import program
from lowtide.errors import BadUse
from lowtide.simulate.bfc import BfcAllocator, OutOfMemory

KB, MB = 1 << 10, 1 << 20


def chunks(allocator: BfcAllocator, *sizes: int) -> list[int]:
    return [allocator.chunk_bytes(allocator.allocate(size)) for size in sizes]


def test_chunks_are_multiples_of_256_bytes() -> None:
    assert chunks(BfcAllocator(), 1, 255, 256, 257, 1000) == [256, 256, 256, 512, 1024]


def test_a_chunk_is_split_only_if_it_is_at_least_twice_the_request() -> None:
    assert chunks(BfcAllocator(), 1 * MB) == [1 * MB]
    assert chunks(BfcAllocator(), 1 * MB + 1) == [2 * MB]


def test_a_chunk_with_128_mb_to_spare_is_split_even_if_it_is_not_twice_the_request() -> None:
    assert chunks(BfcAllocator(), 384 * MB) == [384 * MB]
    assert chunks(BfcAllocator(), 384 * MB + 1) == [512 * MB]


def test_the_smallest_chunk_that_fits_is_taken() -> None:
    allocator = BfcAllocator()
    holes = []
    for size in (8 * KB, 5 * KB, 6 * KB):
        holes.append(allocator.allocate(size))
        allocator.allocate(256)  # keeps the holes apart
    for hole in holes:
        allocator.free(hole)
    assert allocator.allocate(5 * KB + 1) == holes[2]


def test_of_equal_chunks_in_one_region_the_first_is_taken() -> None:
    allocator = BfcAllocator()
    first, _, third, _ = [allocator.allocate(4 * KB) for _ in range(4)]
    allocator.free(third)
    allocator.free(first)
    assert [allocator.allocate(4 * KB), allocator.allocate(4 * KB)] == [first, third]


@pytest.mark.parametrize(("heap_below", "taken"), [(0, "newer"), (32 * MB, "older")])
def test_of_equal_chunks_in_two_regions_the_host_decides(heap_below: int, taken: str) -> None:
    allocator = BfcAllocator(heap_below=heap_below)
    holes = {}
    for region, rest in (("older", 1536 * KB), ("newer", 3584 * KB)):
        holes[region] = allocator.allocate(512 * KB)
        allocator.allocate(rest)
    assert allocator.in_use == allocator.reserved == 2 * MB + 4 * MB
    for hole in holes.values():
        allocator.free(hole)
    assert allocator.allocate(512 * KB) == holes[taken]


def test_freed_neighbours_merge() -> None:
    allocator = BfcAllocator()
    first, second, third = [allocator.allocate(512 * KB) for _ in range(3)]
    for handle in (first, third, second):
        allocator.free(handle)
    assert allocator.largest_free_chunk == allocator.reserved == 2 * MB


def test_regions_double_and_never_merge() -> None:
    allocator = BfcAllocator()
    reserved = []
    handles = []
    for size in (1, 2 * MB, 5 * MB, 30 * MB):
        handles.append(allocator.allocate(size))
        reserved.append(allocator.reserved // MB)
    assert reserved == [2, 2 + 4, 2 + 4 + 8, 2 + 4 + 8 + 32]
    for handle in handles:
        allocator.free(handle)
    assert (allocator.in_use, allocator.largest_free_chunk) == (0, 32 * MB)


def test_the_last_region_is_what_the_limit_leaves_of_it() -> None:
    allocator = BfcAllocator(5 * MB + 1000)
    allocator.allocate(2 * MB)
    allocator.allocate(2 * MB)
    assert allocator.reserved == 5 * MB + 768


def test_fragmentation_can_refuse_what_the_limit_would_allow() -> None:
    allocator = BfcAllocator(6 * MB)
    for handle in [allocator.allocate(2 * MB), allocator.allocate(4 * MB)]:
        allocator.free(handle)
    with pytest.raises(OutOfMemory) as refusal:
        allocator.allocate(5 * MB)
    assert (refusal.value.requested, refusal.value.in_use, refusal.value.limit) == (5 * MB, 0, 6 * MB)
    assert (
        str(refusal.value)
        == "5.00 MiB requested, 0 B of 6.00 MiB in use, and the largest free chunk is 4.00 MiB"
    )


def test_a_refusal_changes_nothing() -> None:
    allocator = BfcAllocator(8 * MB)
    allocator.allocate(3 * MB)
    with pytest.raises(OutOfMemory):
        allocator.allocate(9 * MB)
    assert (allocator.in_use, allocator.peak, allocator.reserved) == (4 * MB, 4 * MB, 4 * MB)
    assert chunks(allocator, 4 * MB) == [4 * MB]


def test_a_region_the_host_refuses_is_asked_for_again_at_nine_tenths() -> None:
    allocator = BfcAllocator(largest_region=100 * MB)
    assert chunks(allocator, 70 * MB) == [
        97_844_992
    ]  # 128 MB x 0.9 x 0.9 x 0.9, each in 32 bits and rounded up
    with pytest.raises(OutOfMemory):
        allocator.allocate(101 * MB)
    with pytest.raises(OutOfMemory):
        BfcAllocator(largest_region=0).allocate(1)


def test_the_numbers_follow_chunks_and_requests_apart() -> None:
    allocator = BfcAllocator()
    first, second = allocator.allocate(1000), allocator.allocate(100)
    assert (allocator.in_use, allocator.requested_in_use, allocator.peak) == (1280, 1100, 1280)
    allocator.free(first)
    assert (allocator.in_use, allocator.requested_in_use, allocator.peak) == (256, 100, 1280)
    allocator.reset_peak()
    assert allocator.peak == 256
    allocator.free(second)
    assert (allocator.in_use, allocator.requested_in_use, allocator.peak) == (0, 0, 256)


def test_no_bytes_are_no_chunk() -> None:
    allocator = BfcAllocator()
    nothing = allocator.allocate(0)
    allocator.free(nothing)
    assert (allocator.chunk_bytes(nothing), allocator.reserved) == (0, 0)


def test_a_copy_goes_its_own_way() -> None:
    allocator = BfcAllocator()
    handle = allocator.allocate(1 * MB)
    fork = allocator.copy()
    fork.free(handle)
    fork.allocate(3 * MB)
    assert (allocator.in_use, allocator.reserved) == (1 * MB, 2 * MB)
    allocator.free(handle)
    assert (fork.in_use, fork.reserved) == (4 * MB, 6 * MB)


def test_bad_use_is_named() -> None:
    allocator = BfcAllocator()
    handle = allocator.allocate(1)
    allocator.free(handle)
    with pytest.raises(BadUse, match=r"not freed since"):
        allocator.free(handle)
    with pytest.raises(BadUse, match=r"zero or more"):
        allocator.allocate(-1)
    with pytest.raises(BadUse, match=r"limit -1"):
        BfcAllocator(-1)


class Chunk:
    def __init__(self, size: int) -> None:
        self.size = size
        self.is_free = True


class Dumb:
    """The real structures, searched in full each time: regions of chunks, 21 bins, newest region lowest."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.next_region = min(limit, 2 * MB)
        self.regions: list[list[Chunk]] = []

    def in_use(self) -> int:
        return sum(chunk.size for region in self.regions for chunk in region if not chunk.is_free)

    def allocate(self, requested: int) -> Chunk | None:
        size = max(256, -(-requested // 256) * 256)
        if not (fits := self._fits(size)):
            available = self.limit - sum(chunk.size for region in self.regions for chunk in region)
            if available < size:
                return None
            before = self.next_region
            while self.next_region < size:
                self.next_region *= 2
            self.regions.insert(0, [Chunk(min(self.next_region, available))])
            if self.next_region == before:
                self.next_region *= 2
            fits = self._fits(size)
        region, chunk = fits[0]
        if chunk.size >= 2 * size or chunk.size - size >= 128 * MB:
            region.insert(region.index(chunk) + 1, Chunk(chunk.size - size))
            chunk.size = size
        chunk.is_free = False
        return chunk

    def free(self, chunk: Chunk) -> None:
        chunk.is_free = True
        for region in self.regions:
            for left, right in reversed(list(pairwise(region))):
                if left.is_free and right.is_free:
                    left.size += right.size
                    region.remove(right)

    def _fits(self, size: int) -> list[tuple[list[Chunk], Chunk]]:
        """Free chunks that fit, in the order of the real search: by bin, by size, by address."""
        in_order_of_address = [(region, chunk) for region in self.regions for chunk in region]
        fitting = [place for place in in_order_of_address if place[1].is_free and place[1].size >= size]
        return sorted(
            fitting, key=lambda place: (min(20, (place[1].size // 256).bit_length() - 1), place[1].size)
        )


sizes = st.integers(1, 4 * KB) | st.integers(0, 16).map(lambda n: 64 * KB * n + 1) | st.integers(1, 300 * MB)
calls = st.lists(
    st.tuples(st.just("allocate"), sizes) | st.tuples(st.just("free"), st.integers(0, 99)), max_size=80
)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(limit_mb=st.sampled_from([1, 5, 30, 700]), calls=calls)
def test_the_model_agrees_with_the_allocator_written_the_dumb_way(
    limit_mb: int, calls: list[tuple[str, int]]
) -> None:
    model, dumb = BfcAllocator(limit_mb * MB), Dumb(limit_mb * MB)
    live: list[tuple[int, Chunk]] = []
    for call, argument in calls:
        if call == "free" and live:
            handle, chunk = live.pop(argument % len(live))
            model.free(handle)
            dumb.free(chunk)
        elif call == "allocate":
            granted = dumb.allocate(argument)
            try:
                handle = model.allocate(argument)
                assert granted is not None
                live.append((handle, granted))
            except OutOfMemory:
                assert granted is None
        assert model.in_use == dumb.in_use()
        assert model.reserved == sum(chunk.size for region in dumb.regions for chunk in region)
        assert [model.chunk_bytes(handle) for handle, _ in live] == [chunk.size for _, chunk in live]


def test_a_map_whose_region_lies_low_in_the_heap_leaves_room_for_larger_ones() -> None:
    low = program.Chunk(address=0x5D5EBC0, bytes=2 << 20, requested=0, in_use=False)
    allocator = BfcAllocator.resumed([low], limit=1 << 36)
    handles = [allocator.allocate(1 << size) for size in range(20, 34)]
    assert len(set(handles)) == len(handles)
    assert min(handles[1:]) > low.address
    for handle in handles:
        allocator.free(handle)
    assert allocator.in_use == 0
