"""What lies beside a planned step is looked at before it runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lowtide.plan.room import in_one_region
from lowtide.program import Chunk, Dim, Op, Program, Value
from lowtide.simulate import Steps
from lowtide.tf import room as looked_at
from lowtide.tf.room import FIRST_STEPS, Room

pytestmark = pytest.mark.tensorflow

MIB, BATCH, LAYERS = 1 << 20, 4, 6
BUDGET = 12 * MIB


def step() -> Program:
    """Tensors of 1 MiB, each made of the one before, all of them wanted at the end."""
    wide = Value("float32", (Dim(0, 1), Dim(MIB // 4 // BATCH)))
    ops = [Op("x", "Placeholder", (), (0,))]
    ops += [Op(f"layer{i}", "Exp", (i - 1,), (i,)) for i in range(1, LAYERS)]
    ops.append(Op("sum", "AddN", tuple(range(LAYERS)), (LAYERS,)))
    return Program(tuple(ops), (wide,) * (LAYERS + 1), inputs=(0,), outputs=(LAYERS,), batch=BATCH)


def a_map(pieces: int = 1, used: int = 512) -> tuple[Chunk, ...]:
    """So much in use, and the rest of the budget in so many free pieces."""
    first, free = in_one_region((Chunk(0, used, used, True),), BUDGET)
    piece = free.bytes // pieces // 256 * 256
    parts = [Chunk(free.address + at * piece, piece - 256, 0, False) for at in range(pieces)]
    walls = [Chunk(part.address + part.bytes, 256, 1, True) for part in parts]
    return tuple(sorted((first, *parts, *walls)))


@pytest.fixture
def room() -> Room:
    return a_room()


def a_room() -> Room:
    program = step()
    timeline = Steps(program, BATCH).timeline_in(a_map())
    plan: Any = SimpleNamespace(program=program, timeline=timeline, budget=BUDGET)
    found = Room(plan)
    found.has_run = True
    return found


def looks(room: Room, chunks: tuple[Chunk, ...], monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(looked_at.profile, "chunks", lambda: chunks)
    return room.would_not_do(sum(chunk.bytes for chunk in chunks if chunk.in_use))


def test_a_step_goes_on_as_long_as_it_would_go_through(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2 * FIRST_STEPS):
        assert not looks(room, a_map(), monkeypatch)


def test_what_has_come_is_seen_in_time(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(looks(room, a_map(), monkeypatch) for _ in range(3))
    assert not looks(room, a_map(used=MIB), monkeypatch)
    assert looks(room, a_map(used=9 * MIB), monkeypatch)


def test_a_little_more_than_ever_before_is_looked_at_too(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than half a batch more each time: at the first that does not do, that is seen."""
    assert not looks(room, a_map(), monkeypatch)
    for used in range(MIB, 9 * MIB, MIB // 8):
        another = a_room()
        assert not looks(another, a_map(), monkeypatch)
        refused = looks(another, a_map(used=used), monkeypatch)
        assert looks(room, a_map(used=used), monkeypatch) == refused
        if refused:
            return
    pytest.fail("none was too much")


def test_free_space_in_pieces_is_seen_where_as_much_is_in_use(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any(looks(room, a_map(), monkeypatch) for _ in range(3))
    assert looks(room, a_map(pieces=16), monkeypatch)


def test_what_is_trusted_is_not_looked_at_until_more_has_come(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not looks(room, a_map(), monkeypatch)
    assert looks(room, a_map(pieces=16), monkeypatch)
    room.trust_up_to(6 * MIB)
    assert not looks(room, a_map(pieces=17), monkeypatch)
    assert looks(room, a_map(used=9 * MIB), monkeypatch)


def test_before_its_first_run_a_step_is_as_it_was_planned(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    room.has_run = False
    assert not looks(room, a_map(pieces=16), monkeypatch)
    room.has_run = True
    assert looks(room, a_map(pieces=16), monkeypatch)


def test_where_the_allocator_can_grow_there_is_nothing_to_look_at() -> None:
    assert Room.of(None) is None
    plan: Any = SimpleNamespace(program=step(), budget=BUDGET)
    assert Room.of(plan) is None
