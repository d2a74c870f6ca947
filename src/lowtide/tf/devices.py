"""A step that runs on several devices becomes what the first of them runs: its ops, its variables, its share of the
batch. A mirrored model does the same on each, so the first stands for all. What another device sends arrives as a new
tensor. Devices of another kind, such as the host beside a GPU, are left as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lowtide.program import Note, Op, Program
from lowtide.tf import compat

RECEIVE = "_Recv"
"""The op that TensorFlow puts where a tensor of another device arrives."""


def on_first_device(program: Program, nodes: Any, homes: Mapping[int, str]) -> Program:
    """The part of `program` that the default device runs; all of it when there is one device.

    `nodes` are the graph's, with their devices; `homes` says where each captured tensor or variable lives, by value.
    """
    first = compat.default_device()
    placed = {node.name: node.device for node in nodes}
    away = {value for value, device in homes.items() if _is_sibling(device, first)}
    elsewhere = {
        op.name
        for op in program.ops
        if _is_sibling(placed.get(op.name, ""), first) or away.intersection((*op.inputs, *op.outputs))
    }
    if not elsewhere:
        return program
    devices = {_short(device) for device in (*placed.values(), *homes.values()) if _is_sibling(device, first)}
    away |= _read_only_by(program, elsewhere)
    kept = [op for op in program.ops if op.name not in elsewhere and not away.intersection(op.outputs)]
    ops = _with_arrivals(program, kept)
    index = {op.name: position for position, op in enumerate(ops)}
    old = [op.name for op in program.ops]
    made = {value for op in ops for value in op.outputs}
    others = ", ".join(sorted(devices))
    why = f"this is {_short(first)} alone, with its share of the batch; a mirrored model needs as much on {others}"
    note = Note(f"{len(devices) + 1} devices", "assumed", 0, why)
    return _without_unused_bodies(
        replace(
            program,
            ops=tuple(
                replace(op, after=tuple(sorted(index[old[i]] for i in op.after if old[i] in index))) for op in ops
            ),
            inputs=tuple(value for value in program.inputs if value in made),
            outputs=tuple(value for value in program.outputs if value in made),
            keep=tuple(index[old[i]] for i in program.keep if old[i] in index),
            residents=tuple(r for r in program.residents if r.value in made),
            notes=(note, *program.notes),
        )
    )


def _is_sibling(device: str, first: str) -> bool:
    """Whether `device` is another one of the same kind as `first`."""
    kind, _, number = device.rpartition(":")
    return kind.rpartition(":")[2] == first.rpartition(":")[0].rpartition(":")[2] and number != first.rpartition(":")[2]


def _short(device: str) -> str:
    return device.rpartition("device:")[2]


def _read_only_by(program: Program, names: set[str]) -> set[int]:
    """Arguments that only these ops read."""
    readers: dict[int, set[bool]] = {value: set() for value in program.inputs}
    for op in program.ops:
        for value in op.inputs:
            if value in readers:
                readers[value].add(op.name in names)
    return {value for value, theirs in readers.items() if theirs == {True}}


def _with_arrivals(program: Program, kept: list[Op]) -> list[Op]:
    """The kept ops, and before them one for each tensor that another device makes for them."""
    made = {value for op in kept for value in op.outputs}
    wanted = {value for op in kept for value in op.inputs} - made
    arrivals = [
        Op(op.name, RECEIVE, (), arriving, layer=op.layer, source=op.source, phase=op.phase)
        for op in program.ops
        if (arriving := tuple(value for value in op.outputs if value in wanted))
    ]
    order = {op.name: position for position, op in enumerate(program.ops)}
    return sorted([*kept, *arrivals], key=lambda op: order[op.name])


def _without_unused_bodies(program: Program) -> Program:
    used = sorted({body for op in program.ops for body in op.bodies})
    number = {old: new for new, old in enumerate(used)}
    ops = tuple(replace(op, bodies=tuple(number[b] for b in op.bodies)) for op in program.ops)
    return replace(program, ops=ops, functions=tuple(program.functions[b] for b in used))
