"""Rows of a Recording as SQLite columns: each NamedTuple is a table, each field a column.

Numbers, texts and None are stored as they are; anything with parts as JSON. Reading goes by the fields' types, so a
table written by an older version, with fewer columns, gives rows whose new fields have their defaults.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, get_type_hints

from lowtide.program import Source
from lowtide.record.types import (
    Allocation,
    Constant,
    Data,
    Detail,
    Device,
    Held,
    HostLine,
    HostSplit,
    Machine,
    Outcome,
    Refusal,
    Run,
    Sample,
    Site,
    Stage,
    Step,
    Tape,
    Trace,
)

TABLES: Mapping[str, type] = {
    "samples": Sample, "steps": Step, "traces": Trace, "stages": Stage, "splits": HostSplit, "lines": HostLine,
    "census": Held, "tapes": Tape, "data": Data,
}  # fmt: skip
"""Table, and `Recording` attribute of the same name, to the type of its rows."""

TABLE_OF = {row_type: name for name, row_type in TABLES.items()}


def columns(row_type: type) -> tuple[str, ...]:
    return row_type._fields  # type: ignore[attr-defined,no-any-return]  # all of TABLES are NamedTuples


def to_columns(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple([value if type(value) in _PLAIN else _text(value) for value in row])


_PLAIN = frozenset({type(None), bool, int, float, str})


def _text(value: Any) -> Any:
    if isinstance(value, Source):
        return _source_text(value)
    return value if isinstance(value, int | float | str) else json.dumps(value)


@cache
def _source_text(source: Source) -> str:
    return json.dumps(source)


def from_columns(row_type: type, names: tuple[str, ...], row: tuple[Any, ...]) -> Any:
    """The row as its type; columns that a newer version added are left out."""
    decoders = _decoders(row_type)
    return row_type(**{n: decoders[n](v) for n, v in zip(names, row, strict=True) if n in decoders})


@cache
def _decoders(row_type: type) -> dict[str, Callable[[Any], Any]]:
    hints = get_type_hints(row_type)
    return {name: _DECODERS.get(str(hints[name]), _same) for name in columns(row_type)}


def _same(value: Any) -> Any:
    return value


def _source(value: str | None) -> Source | None:
    return None if value is None else Source(*json.loads(value))


def _constants(value: str) -> tuple[Constant, ...]:
    return tuple(Constant._make([*row[:-1], _as_source(row[-1])]) for row in json.loads(value))


def _as_source(value: Any) -> Source | None:
    return None if value is None else Source(*value)


_DECODERS: Mapping[str, Callable[[Any], Any]] = {
    str(Source): _source,
    str(Source | None): _source,
    str(tuple[Constant, ...]): _constants,
    str(Mapping[str, int]): json.loads,
    str(Mapping[str, float]): json.loads,
    str(bool): bool,
}


class _DetailColumns(NamedTuple):
    """Allocations turned into columns: one list a field packs far better than one object a row."""

    fields: dict[str, Any]
    sites: list[Any]
    allocations: list[list[Any]]


def pack_detail(detail: Detail) -> bytes:
    plain = {n: getattr(detail, n) for n in Detail.__dataclass_fields__ if n not in ("sites", "allocations", "times")}
    plain["times"] = [round(time, 6) for time in detail.times]
    turned = [list(column) for column in zip(*detail.allocations, strict=True)]
    return zlib.compress(json.dumps(_DetailColumns(plain, list(detail.sites), turned)).encode(), 6)


def unpack_detail(blob: bytes) -> Detail:
    fields, sites, turned = json.loads(zlib.decompress(blob))
    fields["times"] = tuple(fields["times"])
    return Detail(
        sites=tuple(Site(op, kind, layer, _as_source(source), *rest) for op, kind, layer, source, *rest in sites),
        allocations=tuple(Allocation(*row) for row in zip(*turned, strict=True)),
        **fields,
    )


def pack_run(run: Run) -> str:
    machine = {n: getattr(run.machine, n) for n in Machine.__dataclass_fields__}
    return json.dumps({**{n: getattr(run, n) for n in Run.__dataclass_fields__}, "machine": machine})


def unpack_run(text: str) -> Run:
    fields = json.loads(text)
    machine = fields.pop("machine")
    devices = tuple(Device(*device) for device in machine.pop("devices"))
    arguments = tuple(fields.pop("arguments"))
    return Run(machine=Machine(devices=devices, **machine), arguments=arguments, **fields)


def pack_outcome(outcome: Outcome) -> str:
    return json.dumps({n: getattr(outcome, n) for n in Outcome.__dataclass_fields__})


def unpack_outcome(text: str) -> Outcome:
    fields = json.loads(text)
    refusal = fields.pop("refusal")
    if refusal is not None:
        known = dict(zip(Refusal._fields, refusal, strict=False))  # an older version wrote fewer
        refusal = Refusal(**{**known, "source": _as_source(known["source"])})
    return Outcome(source=_as_source(fields.pop("source")), refusal=refusal, **fields)
