"""Files that a report writes, and where they may go: what is there is replaced if Lowtide made it, or it is empty."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from lowtide.errors import BadUse

GENERATOR = '<meta name="generator" content="lowtide">'
"""Near the top of every page."""
TRACE_BEGINS = '{"otherData":{"generator":"lowtide"'
_HEAD = 1024


def check_place(path: str | os.PathLike[str]) -> Path:
    """The path, if a report may be written there. To be asked before long work begins."""
    file = Path(path)
    try:
        wrong = _wrong(file)
    except OSError as error:
        wrong = error.strerror
    if wrong:
        raise BadUse(f"{file}: cannot be written ({wrong}); give another place")
    if file.is_file() and not _is_ours(file):
        raise BadUse(f"{file}: is there and was not made by lowtide; it is left alone, give another place")
    return file


def _wrong(file: Path) -> str | None:
    with contextlib.suppress(FileNotFoundError):
        file.stat()  # a name that is too long, a folder that may not be entered
    if file.is_dir():
        return "it is a directory"
    if not file.parent.is_dir():
        return f"there is no folder {file.parent}"
    there = file if file.exists() else file.parent
    return None if os.access(there, os.W_OK) else f"no permission to write to {there}"


def _is_ours(file: Path) -> bool:
    """Whether Lowtide made it, or nobody will miss it."""
    try:
        with file.open("rb") as opened:
            head = opened.read(_HEAD).decode(errors="replace")
    except OSError:
        return False
    return not head or GENERATOR in head or head.startswith(TRACE_BEGINS)


def write_text(text: str, path: str | os.PathLike[str]) -> None:
    """Write what a report made; a place that cannot be written to gets one line."""
    file = check_place(path)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadUse(f"{file}: cannot be written ({error.strerror}); give another place") from None
