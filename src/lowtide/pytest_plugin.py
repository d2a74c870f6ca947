"""pytest, with memory: limits and leaks as marks, and a table of what tests need.

    @pytest.mark.peak_memory("512 MiB")     the test's own peak: above what was in use when it began
    @pytest.mark.no_leak(steps=20)          the test is run that often; nothing may grow from run to run
    pytest --lowtide                        measures every test, and shows those that need most

Bytes are the device's where TensorFlow counts them (a GPU; a CPU, which this plugin puts on the counting allocator when
a test asks for it before TensorFlow has started) and the test has used it; else the growth of the process.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import pytest

if TYPE_CHECKING:
    from lowtide.record import Recording

TOP = 5
WARM_UP = 3
DEFAULT_STEPS = 20
DEFAULT_ALLOWED = "4 KiB"
"""Growth a step that is taken for noise of the allocators."""


class Need(NamedTuple):
    """What a test needed. `what` says of which memory."""

    test: str
    size: int
    what: str


_NEEDS = pytest.StashKey[list[Need]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("lowtide")
    group.addoption("--lowtide", action="store_true", help="measure the peak memory of every test")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_NEEDS] = []
    config.addinivalue_line("markers", "peak_memory(limit): fail when the test needs more memory than this")
    config.addinivalue_line(
        "markers", "no_leak(steps=20, allow='4 KiB'): run the test so often, and fail when memory grows from run to run"
    )
    if config.getoption("--lowtide"):
        _count()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if any(item.get_closest_marker(name) for item in items for name in ("peak_memory", "no_leak")):
        _count()


def _count() -> None:
    from lowtide.tf.measured import count_cpu_bytes

    count_cpu_bytes()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    mark = item.get_closest_marker("peak_memory")
    wanted = item.config.getoption("--lowtide") and item.get_closest_marker("no_leak") is None
    if mark is None and not wanted:
        return (yield)
    limit = _limit(mark)
    from lowtide.record.host import HighWater
    from lowtide.runs import measure

    with measure() as measured:
        process = HighWater()
        yield
        grown = process.grown()
    need = _need(item.nodeid, measured.recording, grown)
    item.config.stash[_NEEDS].append(need)
    if limit is not None and need.size > limit:
        pytest.fail(_too_much(need, limit, measured.recording), pytrace=False)
    return None


def _limit(mark: Any) -> int | None:
    if mark is None:
        return None
    given = mark.args[0] if mark.args else mark.kwargs.get("limit")
    if given is None:
        _misused("peak_memory", 'expected a limit, such as peak_memory("512 MiB")')
    return _size("peak_memory", given)


def _size(mark: str, given: Any) -> int:
    from lowtide.errors import BadUse
    from lowtide.units import parse_size

    try:
        return parse_size(given)
    except BadUse as error:
        said = str(error)
    return _misused(mark, said)  # out here, or pytest would tell of the other error as well


def _steps(mark: Any) -> int:
    given = mark.kwargs.get("steps", mark.args[0] if mark.args else DEFAULT_STEPS)
    if not isinstance(given, int) or given < 1:
        _misused("no_leak", f"steps {given!r}: expected a positive whole number, such as no_leak(steps=20)")
    return given


def _misused(mark: str, said: str) -> NoReturn:
    """One line instead of a traceback of this file."""
    pytest.fail(f"pytest.mark.{mark}: {said}", pytrace=False)


def _need(test: str, recording: Recording, grown: int) -> Need:
    """The peak above where the test began: what earlier tests left behind is not this one's.

    A test that moved nothing on the device needed the bytes by which the process has `grown`.
    """
    from lowtide.record.views import device_peak, fullest_detail, inside

    peak, detail = device_peak(recording), fullest_detail(recording)
    if peak is not None and (detail is not None or peak.bytes):
        begin = detail.begin_bytes if detail else min(s.device_bytes or 0 for s in inside(recording))
        if peak.bytes > begin:
            return Need(test, peak.bytes - begin, "on the device")
    return Need(test, grown, "of the process")


def _too_much(need: Need, limit: int, recording: Recording) -> str:
    from lowtide.record.views import by_line, fullest_detail
    from lowtide.units import format_size

    over = [f"peak memory: limit {format_size(limit)}, measured {format_size(need.size)} {need.what}"]
    detail = fullest_detail(recording)
    lines = [(source, size) for source, size in by_line(detail).items() if source] if detail else []
    if lines:
        over.append("lines with most alive at the peak:")
        over += [f"  {format_size(size):>10}  {source.file}:{source.line}" for source, size in lines[:TOP] if source]
    return "\n".join(over)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that must not leak is called many times; the last result counts for the others."""
    mark = pyfuncitem.get_closest_marker("no_leak")
    if mark is None:
        return None
    steps = _steps(mark)
    allowed = _size("no_leak", mark.kwargs.get("allow", DEFAULT_ALLOWED))
    names = pyfuncitem._fixtureinfo.argnames
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    readings = []
    for _ in range(WARM_UP + steps):
        pyfuncitem.obj(**arguments)
        readings.append(_reading())
    grown = _growth(readings[WARM_UP - 1 :])
    if grown is not None and grown.size > allowed:
        pytest.fail(_leaks(grown, allowed, steps, pyfuncitem, arguments), pytrace=False)
    return True


class Reading(NamedTuple):
    """Live bytes after a step: the device's, and malloc's, which unlike RSS fall when something is freed."""

    device: int | None
    heap: int


def _reading() -> Reading:
    from lowtide.record.host import heap_reader

    gc.collect()
    read = heap_reader()
    return Reading(_device(), read().live if read else 0)


def _device() -> int | None:
    if "tensorflow" not in sys.modules:
        return None
    from lowtide.tf.profile import counts_bytes, device_bytes

    return device_bytes()["current"] if counts_bytes() else None


def _growth(readings: list[Reading]) -> Need | None:
    """Bytes a step: the median of the changes, of the device or of the heap, whichever grows more."""
    found = []
    for what, values in (
        ("on the device", [r.device for r in readings if r.device is not None]),
        ("on the heap", [r.heap for r in readings]),
    ):
        changes = sorted(b - a for a, b in pairwise(values))
        if changes:
            found.append(Need("", changes[len(changes) // 2], what))
    return max(found, key=lambda need: need.size, default=None)


def _leaks(grown: Need, allowed: int, steps: int, item: pytest.Function, arguments: dict[str, Any]) -> str:
    from lowtide.errors import BadUse
    from lowtide.runs import measure
    from lowtide.units import format_size

    rates = f"limit {format_size(allowed)} a step, measured {format_size(grown.size)} a step {grown.what}"
    said = [f"memory leak: {rates}, over {steps} step{'' if steps == 1 else 's'}"]
    measured = measure()
    try:
        with measured:
            item.obj(**arguments)
    except BadUse:
        return said[0]  # its peak is being measured already: there is one profiler
    held = [row for row in measured.recording.census if row.made or row.held_at]
    for row in held[:TOP]:
        line = row.made or row.held_at  # of several lines that put things there, the code does not show which it was
        assert line is not None
        where = f" in {row.holder}" if row.holder else ""
        said.append(f"  {format_size(row.bytes):>10}  {row.objects} x {row.kind} {row.example}{where}")
        said.append(f"              {line.file}:{line.line}")
    return "\n".join(said)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    measured: list[Need] = config.stash[_NEEDS]
    needs = sorted(measured, key=lambda need: -need.size)
    if not config.getoption("--lowtide") or not needs:
        return
    from lowtide.units import format_size

    terminalreporter.section("lowtide: tests that need most memory")
    for need in needs[:10]:
        terminalreporter.write_line(f"{format_size(need.size):>12} {need.what:15} {need.test}")
