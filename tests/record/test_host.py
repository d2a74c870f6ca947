"""What Linux says of memory, against what this process does with it."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowtide.record import HOST_PARTS
from lowtide.record.host import ProcessMemory, cgroup_limit, fitted, heap_reader, this_machine

MIB = 1 << 20


def test_rss_grows_by_what_is_touched_and_agrees_with_psutil() -> None:
    memory = ProcessMemory()
    before = memory.rss()
    held = bytearray(os.urandom(1)) * (64 * MIB)
    after = memory.rss()
    assert after - before >= 60 * MIB
    assert memory.resident().rss == pytest.approx(psutil.Process().memory_info().rss, abs=8 * MIB)
    assert memory.resident().files > 0
    memory.close()
    assert len(held) == 64 * MIB


def test_another_process_is_read_until_it_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    memory = ProcessMemory(child.pid)
    assert memory.rss() > 0
    child.communicate(b"\n")
    with pytest.raises(OSError):
        memory.rss()
    memory.close()


def test_the_heap_tells_live_from_freed() -> None:
    read = heap_reader()
    if read is None:
        pytest.skip("no glibc 2.33 here")
    before = read().live
    held = bytearray(32 * MIB)
    assert read().live - before >= 32 * MIB
    del held
    assert read().live - before < 16 * MIB


def test_the_machine_has_memory_and_a_limit_is_below_it() -> None:
    machine = this_machine()
    assert machine.memory_bytes == psutil.virtual_memory().total
    limit = cgroup_limit()
    assert limit is None or 0 < limit < machine.memory_bytes


@given(st.dictionaries(st.sampled_from(HOST_PARTS[:-1]), st.integers(0, 1000)), st.integers(0, 3000))
def test_the_parts_of_rss_are_never_negative_and_sum_to_it(counted: dict[str, int], rss: int) -> None:
    parts = fitted({**dict.fromkeys(HOST_PARTS, 0), **counted}, rss)
    assert set(parts) == set(HOST_PARTS)
    assert min(parts.values()) >= 0
    assert sum(parts.values()) == rss
    if sum(counted.values()) <= rss:
        assert all(parts[name] == size for name, size in counted.items())
