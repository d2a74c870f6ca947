"""The live line of `lowtide run`: the terminal's last row, kept out of the way of what the script prints.

The script writes to the same terminal and knows nothing of this. So the terminal is told to scroll only the rows
above (as package installers do for their progress bars); the line is drawn below them, and the cursor put back.
"""

from __future__ import annotations

import os
import time
from types import TracebackType

from rich.console import Console

from lowtide.record import Sample
from lowtide.record.live import Live
from lowtide.report.recording import live_line

SECONDS = 0.5


class LiveLine:
    """Called with each sample from outside. Does nothing when standard error is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._on = console.is_terminal and not console.is_dumb_terminal
        self._drawn = 0.0
        self._rows = 0
        self._live: Live | None = None

    def __enter__(self) -> LiveLine:
        return self

    def follow(self, file: os.PathLike[str]) -> None:
        """The recording that tells what only the child knows."""
        self._live = Live(file)

    def __call__(self, sample: Sample) -> None:
        if not self._on or self._live is None or time.monotonic() - self._drawn < SECONDS:
            return
        self._drawn = time.monotonic()
        self._reserve()
        state = self._live.read(sample)
        text = live_line(sample, state.latest, state.steps, state.peaks, state.growth, self._console.width)
        with self._console.capture() as captured:
            self._console.print(text, end="", overflow="ellipsis", no_wrap=True, crop=True)
        self._write(f"\x1b7\x1b[{self._rows};1H\x1b[2K{captured.get()}\x1b8")

    def _reserve(self) -> None:
        rows = self._console.size.height
        if rows != self._rows:
            self._rows = rows
            self._write(f"\n\x1b7\x1b[1;{rows - 1}r\x1b8\x1b[1A")

    def _write(self, text: str) -> None:
        """In one piece, so that it does not mix with the script's output."""
        os.write(self._console.file.fileno(), text.encode())

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._rows:
            self._write(f"\x1b7\x1b[1;{self._rows}r\x1b[{self._rows};1H\x1b[2K\x1b8")
        if self._live is not None:
            self._live.close()
