"""A Program survives a round trip through a file; any other file gets one clear error."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lowtide.errors import BadFile, LowtideError
from lowtide.program import Chunk, Dim, Note, Op, Program, Resident, Source, Value, load_program, save_program
from lowtide.simulate import save_timeline, simulate
from tests.drafts import chain, everything, random_programs

sources = st.none() | st.builds(Source, st.text(max_size=5), st.integers(1, 999))
dims = st.builds(Dim, st.integers(-5, 1 << 40), st.integers(0, 99))
attributes = st.dictionaries(
    st.text(max_size=5), st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.tuples(st.integers())
)
decorations = st.fixed_dictionaries(
    {
        "notes": st.lists(st.builds(Note, st.text(), st.text(), st.integers(0), st.text()), max_size=2).map(tuple),
        "chunks": st.none()
        | st.lists(st.builds(Chunk, st.integers(0), st.integers(0), st.integers(0), st.booleans())).map(tuple),
        "versions": st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2),
        "name": st.text(max_size=9),
        "batch": st.integers(1, 1 << 20),
    }
)


@st.composite
def decorated_programs(draw: st.DrawFn) -> Program:
    """Random DAGs with everything else that a Program can carry, bodies included."""
    program = draw(random_programs(most_ops=6))
    ops = [
        replace(op, layer=draw(st.text(max_size=5)), source=draw(sources), attrs=draw(attributes)) for op in program.ops
    ]
    functions = tuple(draw(st.lists(random_programs(most_ops=3), max_size=2)))
    if functions:
        ops.append(Op("loop", "While", (), (), bodies=(0,), trips=draw(st.none() | dims)))
        turns = tuple(draw(st.lists(st.integers(0, 1), max_size=3)))
        ops.append(Op("branch", "If", (0,), (), bodies=(0, 0), turns=turns))
    values = [*program.values, Value("string", None), Value("half", tuple(draw(st.lists(dims, max_size=3))))]
    residents = (Resident(draw(st.text()), "other", draw(st.integers(0)), 0, draw(st.text()), draw(sources)),)
    return replace(
        program, ops=tuple(ops), values=tuple(values), functions=functions, residents=residents, **draw(decorations)
    )


def test_everything_a_program_holds_comes_back(tmp_path: Path) -> None:
    save_program(everything(), tmp_path / "step.lowtide")
    assert load_program(tmp_path / "step.lowtide") == everything()


@given(decorated_programs())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_program_comes_back(tmp_path: Path, program: Program) -> None:
    save_program(program, tmp_path / "step.lowtide")
    assert load_program(tmp_path / "step.lowtide") == program


def test_the_same_program_gives_the_same_file(tmp_path: Path) -> None:
    save_program(everything(), tmp_path / "a")
    save_program(everything(), tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_nothing_is_left_beside_the_file(tmp_path: Path) -> None:
    save_program(chain(1), tmp_path / "step.lowtide")
    assert [path.name for path in tmp_path.iterdir()] == ["step.lowtide"]


def document(**changes: Any) -> bytes:
    whole = {"lowtide": "program", "version": 1, "body": body_of(everything()), **changes}
    return gzip.compress(json.dumps(whole).encode())


def body_of(program: Program) -> Any:
    from lowtide.program.store import program_to_data

    return json.loads(json.dumps(program_to_data(program)))


UNREADABLE = {
    "empty": b"",
    "text": b"hello",
    "another zip": gzip.compress(b"\xff\xfe"),
    "json that is not ours": gzip.compress(b'{"a": 1}'),
    "a list": gzip.compress(b"[1, 2]"),
    "cut short": document()[:-20],
    "half": document()[: len(document()) // 2],
    "a flipped byte": document()[:40] + bytes([document()[40] ^ 255]) + document()[41:],
    "another kind": document(lowtide="recording"),
    "no version": document(version=None),
    "no body": gzip.compress(b'{"lowtide": "program", "version": 1}'),
    "a body of another form": document(body=[1, 2, 3]),
    "no ops": document(body={**body_of(everything()), "ops": None}),
    "an op without a name": document(body={**body_of(everything()), "ops": [[]]}),
    "a value that is not there": document(body={**body_of(everything()), "outputs": [99]}),
    "an output that is no number": document(body={**body_of(everything()), "outputs": ["x"]}),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_a_file_that_is_no_program_gets_one_clear_line(tmp_path: Path, what: str) -> None:
    path = tmp_path / "step.lowtide"
    path.write_bytes(UNREADABLE[what])
    with pytest.raises(BadFile) as error:
        load_program(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_a_newer_file_says_to_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "step.lowtide"
    path.write_bytes(document(version=99))
    with pytest.raises(BadFile, match=r"program of version 99, this Lowtide reads up to \d+; upgrade"):
        load_program(path)


def test_an_artifact_of_another_kind_is_named(tmp_path: Path) -> None:
    save_timeline(simulate(chain(1)), tmp_path / "t")
    with pytest.raises(BadFile, match="expected a Lowtide program, found timeline"):
        load_program(tmp_path / "t")


def test_a_missing_file_and_a_folder_are_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="No such file"):
        load_program(tmp_path / "nowhere")
    with pytest.raises(BadFile, match="Is a directory"):
        load_program(tmp_path)


def leaves(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    return [path, *(leaf for key, child in children for leaf in leaves(child, (*path, key)))]


BODY = body_of(everything())


@given(st.sampled_from(leaves(BODY)[1:]), st.sampled_from([None, -1, 10**6, 0.5, "x", "", [], {}, [[]], True]))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_body_damaged_anywhere_loads_or_says_so(tmp_path: Path, where: tuple[Any, ...], junk: Any) -> None:
    body = json.loads(json.dumps(BODY))
    inner = body
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = junk
    path = tmp_path / "step.lowtide"
    path.write_bytes(document(body=body))
    try:
        load_program(path)
    except LowtideError as error:
        assert "\n" not in str(error)
