"""A Recording while it is being written: just the latest, cheaply."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from typing import NamedTuple

from lowtide.record.rows import from_columns
from lowtide.record.types import INSIDE, Sample

_RECENT = 50


class State(NamedTuple):
    """`peaks` of device and host; `growth` in RSS bytes a step over the latest steps."""

    latest: Sample | None
    steps: int
    peaks: tuple[int, int]
    growth: float | None


class Live:
    """Reads a file that another process writes to. What cannot be read is as it was."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = path
        self._database: sqlite3.Connection | None = None
        self._state = State(None, 0, (0, 0), None)

    def read(self, sample: Sample) -> State:
        device, host = self._state.peaks
        with contextlib.suppress(sqlite3.Error):
            if self._database is None:
                self._database = sqlite3.connect(f"file:{os.fspath(self._path)}?mode=ro", uri=True, timeout=0.05)
            found = self._database.execute("SELECT * FROM samples WHERE by=? ORDER BY rowid DESC LIMIT 1", (INSIDE,))
            names = tuple(column[0] for column in found.description)
            row = found.fetchone()
            latest = from_columns(Sample, names, row) if row else None
            (highest,) = self._database.execute("SELECT max(device_peak_bytes) FROM samples").fetchone()
            (steps,) = self._database.execute("SELECT sum(repeats) FROM steps").fetchone()
            self._state = State(latest, steps or 0, (highest or device, host), self._growth())
        self._state = self._state._replace(peaks=(self._state.peaks[0], max(host, sample.rss_bytes or 0)))
        return self._state

    def _growth(self) -> float | None:
        assert self._database is not None
        query = "SELECT rss_bytes, repeats FROM steps ORDER BY rowid DESC LIMIT ?"
        rows = self._database.execute(query, (_RECENT,)).fetchall()
        if len(rows) < 4 or rows[0][0] is None or rows[-1][0] is None:
            return None
        return float((rows[0][0] - rows[-1][0]) / max(1, sum(row[1] for row in rows[:-1])))

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
