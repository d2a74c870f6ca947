"""TensorFlow's BFC allocator, call for call: which chunk each request gets, and which request is refused.

The idea of the real one (`BFCAllocator`, after Doug Lea's malloc): memory comes from the host in a few large
*regions*, each cut into *chunks* that are free or in use. A request takes the smallest free chunk that fits,
at the lowest address among equals; a chunk much too large is split; a freed chunk merges with its free
neighbours. A limit bites on regions, and `tf.config.experimental.get_memory_info` counts chunks: both exceed
the bytes asked for, by an amount that only the history of calls decides. Hence a replay, not a formula.

Modelled: CPU:0 under `TF_CPU_ALLOCATOR_USE_BFC=1`. Its regions double in size, are never given back (garbage
collection is off) and are never joined; a chunk is free as soon as it is freed (no timing counter). A tensor
that is refused waits ten seconds for another thread to free something: here it is refused at once. Not
modelled: a GPU, which by default takes all its memory as one region and does collect garbage.

The real one keeps its free chunks in 21 bins, by powers of two of their size, and searches the bins in that
order. So its first fit over bins is the best fit over all chunks, and one sorted list says the same.

Known to be uncertain: where the host puts a region, which decides between equal free chunks of two regions.
 - By default glibc maps each region at a lower address than the one before, and that is the model.
 - Once a process has freed a mapped block, glibc serves blocks up to that size, if less than 32 MiB, from its
   heap: such regions lie below all mapped ones, each above the one before. `heap_below` models that, but not
   for threads other than the main one, which have heaps of their own.
 - A region may land in a hole of the address space, such as the heaps of threads leave.
A choice between equal chunks changes what merges later, so another order of regions can move a peak by some
percent. In a process started with `MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=131072` the order is as here,
and the model exact after every call: `tests/tf/test_bfc_is_the_real_allocator.py`.
"""

from __future__ import annotations

import copy
import struct
from bisect import bisect_left, insort
from collections.abc import Sequence

from lowtide.errors import BadUse
from lowtide.program import Chunk
from lowtide.units import format_size

QUANTUM = 256  # a chunk is a multiple of this many bytes
FIRST_REGION = 2 << 20
SPLIT_ABOVE = 128 << 20  # a chunk with this much to spare is split, even if it is not twice the request
DEFAULT_LIMIT = 64 << 30  # where TF_CPU_BFC_MEM_LIMIT_IN_MB is not set
BACK_PEDAL = 0.9  # of a region that the host refuses, the part to ask for next

# A free chunk is one integer, size above address, so that integers sort as the real comparator sorts chunks.
_ADDRESS_BITS = 47  # the user half of an x86-64 address space
_ADDRESS = (1 << _ADDRESS_BITS) - 1
_MAPPED, _MAPPED_HIGHEST = 0x7000 << 32, 0x7F00 << 32  # what Linux maps is above the first; any program's heap below


class OutOfMemory(Exception):
    """The allocator refuses: no free chunk fits, and the limit leaves no room for a region that would."""

    def __init__(self, requested: int, in_use: int, limit: int, largest_free_chunk: int) -> None:
        super().__init__(requested, in_use, limit, largest_free_chunk)
        self.requested = requested
        self.in_use = in_use
        self.limit = limit
        self.largest_free_chunk = largest_free_chunk

    def __str__(self) -> str:
        return (
            f"{format_size(self.requested)} requested, {format_size(self.in_use)} of "
            f"{format_size(self.limit)} in use, and the largest free chunk is "
            f"{format_size(self.largest_free_chunk)}"
        )


class BfcAllocator:
    """The allocator's state. Stands for `malloc` and `free` on a device that has `limit` bytes.

    Regions of less than `heap_below` bytes come from glibc's heap, and the host refuses regions of more than
    `largest_region` bytes: with Linux's default overcommit, more than its RAM and swap together.
    """

    def __init__(
        self, limit: int | None = None, *, heap_below: int = 0, largest_region: int | None = None
    ) -> None:
        self.limit = DEFAULT_LIMIT if limit is None else limit
        if not 0 <= self.limit <= _ADDRESS // 4:
            raise BadUse(f"limit {limit}: expected 0 to {_ADDRESS // 4} bytes; None means {DEFAULT_LIMIT}")
        self.in_use = 0  # bytes of the chunks in use
        self.requested_in_use = 0  # bytes that were asked for when those chunks were handed out
        self.peak = 0  # the largest `in_use` since the start or `reset_peak`
        self.reserved = 0  # bytes of all regions
        self._largest_region = self.limit if largest_region is None else largest_region
        self._heap_below = heap_below
        self._next_region = rounded(min(self.limit, FIRST_REGION))
        self._heap_end, self._mapped_start = QUANTUM, 1 << (_ADDRESS_BITS - 1)
        self._live: dict[int, tuple[int, int]] = {}  # address -> chunk bytes, requested bytes
        self._free: list[int] = []  # every free chunk, smallest first
        self._free_starting: dict[int, int] = {}  # address -> the free chunk that starts there
        self._free_ending: dict[int, int] = {}  # address -> the free chunk that ends there

    @classmethod
    def resumed(cls, chunks: Sequence[Chunk], limit: int | None = None) -> BfcAllocator:
        """An allocator in the state of a real one, whose map `chunks` is, by address. Handles are addresses.

        How large its next region will be is not in the map; after a regular growth it is twice the last. A region may
        lie in glibc's heap, where that had room; the next one will not.
        """
        allocator = cls(limit)
        regions: list[list[Chunk]] = []
        for chunk in chunks:
            if not regions or regions[-1][-1].address + regions[-1][-1].bytes != chunk.address:
                regions.append([])
            regions[-1].append(chunk)
            if chunk.in_use:
                allocator._live[chunk.address] = chunk.bytes, chunk.requested
                allocator.in_use += chunk.bytes
                allocator.requested_in_use += chunk.requested
            else:
                allocator._add_free(chunk.address, chunk.address + chunk.bytes)
        allocator.reserved = sum(chunk.bytes for chunk in chunks)
        mapped = [region for region in regions if region[0].address >= _MAPPED]
        allocator._mapped_start = mapped[0][0].address if mapped else _MAPPED_HIGHEST
        if regions:  # the newest mapped region is the lowest; on the heap, the highest
            newest = mapped[0] if mapped else regions[-1]
            allocator._next_region = 2 * sum(chunk.bytes for chunk in newest)
        allocator.peak = allocator.in_use
        return allocator

    def allocate(self, requested: int) -> int:
        """A handle on a chunk of `requested` bytes or more; 0 for no bytes. Raises `OutOfMemory`."""
        if requested <= 0:
            return _nothing(requested)
        size = rounded(requested)
        fit = bisect_left(self._free, size << _ADDRESS_BITS)
        if fit == len(self._free):
            if not self._extend(size):
                raise OutOfMemory(requested, self.in_use, self.limit, self.largest_free_chunk)
            fit = bisect_left(self._free, size << _ADDRESS_BITS)
        found = self._free.pop(fit)
        chunk, address = found >> _ADDRESS_BITS, found & _ADDRESS
        del self._free_starting[address]
        if chunk >= 2 * size or chunk - size >= SPLIT_ABOVE:
            self._add_free(address + size, address + chunk)
            chunk = size
        else:
            del self._free_ending[address + chunk]
        self._live[address] = chunk, requested
        self.requested_in_use += requested
        self.in_use += chunk
        if self.in_use > self.peak:
            self.peak = self.in_use
        return address

    def free(self, handle: int) -> None:
        """Gives a chunk back and merges it with the free chunks beside it, in the same region."""
        if handle == 0:
            return
        try:
            chunk, requested = self._live.pop(handle)
        except KeyError:
            raise BadUse(f"free({handle}): expected what allocate returned, and not freed since") from None
        self.in_use -= chunk
        self.requested_in_use -= requested
        start, end = handle, handle + chunk
        if after := self._free_starting.pop(end, 0):
            del self._free[bisect_left(self._free, after)]
            end += after >> _ADDRESS_BITS
        if before := self._free_ending.pop(start, 0):
            del self._free[bisect_left(self._free, before)]
            start = before & _ADDRESS
        self._add_free(start, end)

    def chunk_bytes(self, handle: int) -> int:
        """The bytes that a handle occupies: what was requested or more, at times nearly twice as much."""
        return self._live[handle][0] if handle else 0

    @property
    def free_chunks(self) -> list[int]:
        """Bytes of each, smallest first."""
        return [chunk >> _ADDRESS_BITS for chunk in self._free]

    @property
    def largest_free_chunk(self) -> int:
        return self._free[-1] >> _ADDRESS_BITS if self._free else 0

    def reset_peak(self) -> None:
        """As `tf.config.experimental.reset_memory_stats`: the peak starts again from what is in use now."""
        self.peak = self.in_use

    def copy(self) -> BfcAllocator:
        """Another allocator in the same state, in time proportional to its chunks. Handles hold in both."""
        other = copy.copy(self)
        other._live = self._live.copy()
        other._free = self._free.copy()
        other._free_starting = self._free_starting.copy()
        other._free_ending = self._free_ending.copy()
        return other

    def _add_free(self, start: int, end: int) -> None:
        """Records a free chunk, over whatever was recorded of its two ends before."""
        chunk = (end - start) << _ADDRESS_BITS | start
        self._free_starting[start] = chunk
        self._free_ending[end] = chunk
        insort(self._free, chunk)

    def _extend(self, size: int) -> bool:
        """Gets a region in which `size` bytes fit: twice the last one, or less if limit or host say so."""
        available = (self.limit - self.reserved) // QUANTUM * QUANTUM
        if size > available:
            return False
        doubled = False
        while self._next_region < size:
            self._next_region *= 2
            doubled = True
        region = min(self._next_region, available)
        while region > self._largest_region:
            smaller = rounded(int(_float32(_float32(region) * _float32(BACK_PEDAL))))
            if smaller < size or smaller == region:  # at equal, 2304 bytes, the real one asks for ever
                return False
            region = smaller
        if not doubled:
            self._next_region *= 2
        self.reserved += region
        start = self._place(region)
        self._add_free(start, start + region)
        return True

    def _place(self, region: int) -> int:
        """The address of a new region. A gap on each side keeps the chunks of two regions from merging."""
        if region < self._heap_below:
            start = self._heap_end
            self._heap_end += region + QUANTUM
        else:
            self._mapped_start -= region + QUANTUM
            start = self._mapped_start
        return start


def rounded(size: int) -> int:
    """The bytes of the smallest chunk that holds so many."""
    return (size + QUANTUM - 1) // QUANTUM * QUANTUM


def _float32(number: float) -> float:
    """TensorFlow pedals back in single precision."""
    value: float = struct.unpack("f", struct.pack("f", number))[0]
    return value


def _nothing(requested: int) -> int:
    if requested < 0:
        raise BadUse(f"allocate({requested}): expected a number of bytes, zero or more")
    return 0
