"""Program <-> file. Positions in lists, not names, carry the structure: a step has ten thousand ops."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from lowtide.program.files import load_artifact, write_artifact
from lowtide.program.types import UNLISTED, Chunk, Dim, Note, Op, Program, Resident, Source, Times, Value
from lowtide.program.verify import verify

KIND, VERSION = "program", 1


def save_program(program: Program, path: str | os.PathLike[str]) -> None:
    write_artifact(path, KIND, VERSION, program_to_data(program))


def load_program(path: str | os.PathLike[str]) -> Program:
    return load_artifact(path, KIND, VERSION, _verified)


def _verified(data: Mapping[str, Any]) -> Program:
    program = program_from_data(data)
    verify(program)
    return program


def program_to_data(program: Program) -> dict[str, Any]:
    return {
        "name": program.name,
        "batch": program.batch,
        "chunks": program.chunks,
        "versions": dict(program.versions),
        "times": None if program.times is None else [program.times.batch, dict(program.times.seconds)],
        "inputs": program.inputs,
        "outputs": program.outputs,
        "keep": program.keep,
        "notes": [[n.what, n.treatment, n.bytes, n.why] for n in program.notes],
        "residents": [
            [r.name, r.category, r.bytes, r.value, r.layer, r.source, r.address] for r in program.residents
        ],
        "values": [[v.dtype, v.shape] for v in program.values],
        "ops": [
            [op.name, op.kind, op.inputs, op.outputs, op.after, dict(op.attrs), op.layer, op.source, op.phase,
             op.bodies, op.trips, op.position, op.turns]
            for op in program.ops
        ],
        "functions": [program_to_data(function) for function in program.functions],
    }  # fmt: skip


def program_from_data(data: Mapping[str, Any]) -> Program:
    return Program(
        ops=tuple(_op(*row) for row in data["ops"]),
        values=tuple(
            Value(dtype, None if shape is None else tuple(Dim(*dim) for dim in shape))
            for dtype, shape in data["values"]
        ),
        inputs=tuple(data["inputs"]),
        outputs=tuple(data["outputs"]),
        keep=tuple(data["keep"]),
        residents=tuple(_resident(*row) for row in data["residents"]),
        functions=tuple(program_from_data(function) for function in data["functions"]),
        batch=data["batch"],
        chunks=None if data["chunks"] is None else tuple(Chunk(*row) for row in data["chunks"]),
        name=data["name"],
        notes=tuple(Note(*row) for row in data["notes"]),
        versions=dict(data["versions"]),
        times=None if data.get("times") is None else Times(*data["times"]),
    )


def _op(
    name: str, kind: str, inputs: list[int], outputs: list[int], after: list[int], attrs: dict[str, Any],
    layer: str, source: list[Any] | None, phase: str, bodies: list[int], trips: list[int] | None,
    position: int = UNLISTED, turns: Sequence[int] = (),
) -> Op:  # fmt: skip
    return Op(
        name,
        kind,
        tuple(inputs),
        tuple(outputs),
        tuple(after),
        {key: tuple(value) if isinstance(value, list) else value for key, value in attrs.items()},
        layer,
        Source(*source) if source else None,
        phase,
        tuple(bodies),
        Dim(*trips) if trips else None,
        position,
        tuple(turns),
    )


def _resident(
    name: str, category: str, size: int, value: int, layer: str, source: list[Any] | None, address: int | None
) -> Resident:
    return Resident(name, category, size, value, layer, Source(*source) if source else None, address)
