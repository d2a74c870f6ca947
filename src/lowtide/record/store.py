"""A Recording in one SQLite file, written while the run goes on and readable whatever became of it.

The file is in WAL mode while it is written: a writer that is killed loses what it had not yet committed and nothing
else, and two processes, the watched one and its parent, write side by side. A full disk loses rows, never the run:
they are counted, and a note says so. When the run is over the log is folded in, so that one file is left.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sqlite3
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lowtide.errors import BadFile
from lowtide.program import Source
from lowtide.program.files import require_file
from lowtide.record.rows import (
    TABLE_OF,
    TABLES,
    columns,
    from_columns,
    pack_detail,
    pack_outcome,
    pack_run,
    to_columns,
    unpack_detail,
    unpack_outcome,
    unpack_run,
)
from lowtide.record.types import Detail, Device, Made, Outcome, Recording, Run

APPLICATION = 0x4C6F7774
"""SQLite's `application_id` of our files: "Lowt"."""
VERSION = 1
_BUSY_SECONDS = 5.0
_MOST_WAITING = 50_000
"""Rows kept while the file cannot be written; more are dropped and counted."""
_FACT = "INSERT OR REPLACE INTO facts"
_ROWS_A_STATEMENT = 40
"""A statement has at most 999 values in an old SQLite."""


def create_recording(path: str | os.PathLike[str], run: Run) -> None:
    """Begin a file. One that is there is replaced if it is a Recording, and never if it is something else."""
    file = Path(path)
    if file.exists():
        if file.stat().st_size and not is_recording(file):
            raise BadFile(f"{file}: is there and is no Lowtide recording; it is left alone, choose another --out")
        for old in (file, *_beside(file)):
            old.unlink(missing_ok=True)
    try:
        with contextlib.closing(sqlite3.connect(file)) as database:
            database.execute("PRAGMA journal_mode=WAL")
            database.execute(f"PRAGMA application_id={APPLICATION}")
            database.execute(f"PRAGMA user_version={VERSION}")
            with database:
                _make_tables(database)
                database.execute("INSERT INTO facts VALUES ('run', ?)", (pack_run(run),))
    except sqlite3.Error as error:
        for begun in (file, *_beside(file)):
            with contextlib.suppress(OSError):
                begun.unlink(missing_ok=True)  # half of one would be taken for somebody else's
        raise BadFile(f"{file}: cannot be written ({error}); choose another --out") from None


def _make_tables(database: sqlite3.Connection) -> None:
    for name, row_type in TABLES.items():
        database.execute(f"CREATE TABLE {name} ({', '.join(columns(row_type))})")
    database.execute("CREATE TABLE details (body BLOB)")
    database.execute("CREATE TABLE facts (name TEXT PRIMARY KEY, body TEXT)")
    database.execute("CREATE TABLE sources (file TEXT PRIMARY KEY, text TEXT)")
    database.execute("CREATE TABLE notes (text TEXT PRIMARY KEY)")


def _beside(file: Path) -> tuple[Path, Path]:
    return file.with_name(file.name + "-wal"), file.with_name(file.name + "-shm")


class _Lost:
    """Rows that found no room: how many, from when to when in seconds of the run, and what SQLite said."""

    def __init__(self) -> None:
        self.rows = 0
        self.why = ""
        self._span: tuple[float, float] | None = None

    def add(self, row: tuple[Any, ...]) -> None:
        self.rows += 1
        time = getattr(row, "time", getattr(row, "start", None))
        if time is not None:
            first, last = self._span or (time, time)
            self._span = min(first, time), max(last, time)

    def note(self) -> str:
        when = f" from {self._span[0]:.1f} s to {self._span[1]:.1f} s" if self._span else ""
        why = f"the recording could not be written{f' ({self.why})' if self.why else ''}"
        rows = "1 row" if self.rows == 1 else f"{self.rows} rows"
        return f"{rows}{when} lost: {why}; make room or give --out on another disk, and run it again"


class Writer:
    """Appends to a Recording. `add` only remembers; `flush` writes, from any one thread at a time.

    Nothing here raises for a file that cannot be written: the run matters more than its record. What waits is a table
    with a row of it, turned into columns when it is written, or a statement with its values.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._waiting: list[tuple[str, tuple[Any, ...]]] = []
        self._lost = _Lost()
        self._database: sqlite3.Connection | None = None

    def add(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Rows of any of the types in `TABLES`."""
        for row in rows:
            self._put(TABLE_OF[type(row)], row)

    def add_detail(self, detail: Detail) -> None:
        self._put("INSERT INTO details VALUES (?)", (pack_detail(detail),))

    def replace_tapes(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Tapes are counted by line over the whole run: the latest count stands for all before it."""
        self._put("DELETE FROM tapes", ())
        self.add(rows)

    def fact(self, name: str, body: Any) -> None:
        """`run` facts learned late: "devices", "versions", "environment"."""
        self._put(f"{_FACT} VALUES (?, ?)", (name, json.dumps(body)))

    def outcome(self, outcome: Outcome) -> None:
        self._put(f"{_FACT} VALUES ('outcome', ?)", (pack_outcome(outcome),))

    def source(self, file: str, text: str) -> None:
        self._put("INSERT OR IGNORE INTO sources VALUES (?, ?)", (file, text))

    def note(self, text: str) -> None:
        self._put("INSERT OR IGNORE INTO notes VALUES (?)", (text,))

    def _put(self, statement: str, values: tuple[Any, ...]) -> None:
        if len(self._waiting) >= _MOST_WAITING:
            self._lost.add(values)
        else:
            self._waiting.append((statement, values))

    def flush(self) -> bool:
        """Whether everything that waits is now in the file. In a fork of the process that writes, nothing happens."""
        if os.getpid() != self._pid:
            self._waiting.clear()
            return False
        with self._lock:
            taken = len(self._waiting)
            if not taken and not self._lost.rows:
                return True
            try:
                self._commit(self._waiting[:taken])
            except sqlite3.Error as error:
                self._lost.why = str(error)
                return False
            del self._waiting[:taken]
            self._lost = _Lost()
            return True

    def _commit(self, rows: list[tuple[str, tuple[Any, ...]]]) -> None:
        if self._database is None:
            self._database = sqlite3.connect(self._path, timeout=_BUSY_SECONDS, check_same_thread=False)
            self._database.execute("PRAGMA synchronous=NORMAL")
        with self._database as database:
            for statement, values in _together(rows):
                database.execute(statement, values)
            if self._lost.rows:
                database.execute("INSERT OR IGNORE INTO notes VALUES (?)", (self._lost.note(),))

    def _keep_the_end(self) -> None:
        """Let all rows go but the facts, and have the log folded in: that makes room."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            for what, row in waiting:
                if what.startswith(_FACT):
                    self._waiting.append((what, row))
                else:
                    self._lost.add(row)
            with contextlib.suppress(sqlite3.Error):
                if self._database is not None:
                    self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def unwritten(self) -> tuple[str, ...]:
        """After `close`: the note on what was lost, where not even that found room."""
        return (self._lost.note(),) if self._lost.rows or self._waiting else ()

    def close(self) -> None:
        """Write what waits, and let go of the file. Without room for all of it: how the run ended, at least."""
        if not self.flush() and os.getpid() == self._pid:
            self._keep_the_end()
            self.flush()
        with self._lock:
            if self._database is not None and os.getpid() == self._pid:
                self._database.close()
            self._database = None


def _together(waiting: list[tuple[str, tuple[Any, ...]]]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Statements with their values; rows of one table that follow each other in one statement.

    SQLite lets go of Python's lock at each statement, and the script's thread and this one then wait for each other.
    """
    for what, group in itertools.groupby(waiting, key=lambda one: one[0]):
        if what not in TABLES:
            yield from group
            continue
        while rows := [to_columns(row) for _, row in itertools.islice(group, _ROWS_A_STATEMENT)]:
            one = f"({', '.join('?' * len(rows[0]))})"
            yield f"INSERT INTO {what} VALUES {', '.join([one] * len(rows))}", tuple(itertools.chain(*rows))


def finish_recording(path: str | os.PathLike[str]) -> None:
    """Fold the log into the file, so that one file is left. When that cannot be, the log stays and is read with it."""
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path, timeout=_BUSY_SECONDS)) as open_:
        open_.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        open_.execute("PRAGMA journal_mode=DELETE")


def is_recording(path: str | os.PathLike[str]) -> bool:
    try:
        with contextlib.closing(sqlite3.connect(f"file:{_quoted(Path(path))}?mode=ro", uri=True)) as database:
            return bool(database.execute("PRAGMA application_id").fetchone()[0] == APPLICATION)
    except sqlite3.Error:
        return False


def load_recording(path: str | os.PathLike[str]) -> Recording:
    """The Recording in a file: finished, still being written, or left by a writer that was killed."""
    file = Path(path)
    with _opened(file) as database:
        _check(file, database)
        parts: dict[str, Any] = {name: _rows(database, name, row_type) for name, row_type in TABLES.items()}
        facts = dict(database.execute("SELECT name, body FROM facts"))
        details = tuple(unpack_detail(blob) for (blob,) in database.execute("SELECT body FROM details ORDER BY rowid"))
        parts["samples"] = tuple(sorted(parts["samples"], key=lambda sample: sample.time))
        return Recording(
            run=_run(facts),
            outcome=_outcome(facts, parts),
            details=details,
            sources=dict(database.execute("SELECT file, text FROM sources")),
            made=tuple(Made(kind, name, Source(*at), n) for kind, name, at, n in json.loads(facts.get("made", "[]"))),
            switches=json.loads(facts.get("switches", "{}")),
            notes=tuple(text for (text,) in database.execute("SELECT text FROM notes")),
            **parts,
        )


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    require_file(file, "a recording that `lowtide run --out FILE` made")
    try:
        with contextlib.closing(_connected(file)) as database:
            yield database
    except (sqlite3.Error, ValueError, TypeError, KeyError, zlib.error) as error:
        raise BadFile(f"{file}: damaged, or no Lowtide recording ({error}); record the run again") from None


def _connected(file: Path) -> sqlite3.Connection:
    """A log left by a killed writer is folded in on reading, which needs to write; where nothing can be, read as is."""
    writable = os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)
    mode = "mode=rw" if writable else "mode=ro" if _beside(file)[0].exists() else "immutable=1"
    return sqlite3.connect(f"file:{_quoted(file)}?{mode}", uri=True, timeout=_BUSY_SECONDS)


def _quoted(file: Path) -> str:
    return str(file).replace("%", "%25").replace("?", "%3f").replace("#", "%23")


def _check(file: Path, database: sqlite3.Connection) -> None:
    if database.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        what = "an empty file" if not file.stat().st_size else "another program's database"
        raise BadFile(f"{file}: expected a Lowtide recording, found {what}")
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise BadFile(f"{file}: recording of version {version}, this Lowtide reads up to {VERSION}; upgrade lowtide")
    wrong = database.execute("PRAGMA quick_check(1)").fetchone()[0]
    if wrong != "ok":
        raise BadFile(f"{file}: damaged ({str(wrong).splitlines()[0]}); record the run again")


def _rows(database: sqlite3.Connection, table: str, row_type: type) -> tuple[Any, ...]:
    found = database.execute(f"SELECT * FROM {table} ORDER BY rowid")
    names = tuple(column[0] for column in found.description)
    return tuple(from_columns(row_type, names, row) for row in found)


def _run(facts: Mapping[str, str]) -> Run:
    run = unpack_run(facts["run"])
    devices = tuple(Device(*device) for device in json.loads(facts.get("devices", "[]"))) or run.machine.devices
    versions = {**run.versions, **json.loads(facts.get("versions", "{}"))}
    environment = {**run.environment, **json.loads(facts.get("environment", "{}"))}
    return replace(
        run, machine=replace(run.machine, devices=devices), versions=versions, environment=environment
    )


def _outcome(facts: Mapping[str, str], parts: Mapping[str, Any]) -> Outcome:
    """What the parent wrote; else as far as the samples go."""
    if "outcome" in facts:
        return unpack_outcome(facts["outcome"])
    last = max((sample.time for sample in parts["samples"]), default=0.0)
    return Outcome("unknown", last, why="the recording ends in the middle of the run")
