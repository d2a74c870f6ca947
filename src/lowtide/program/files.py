"""Artifacts in files: gzipped JSON with a kind and a version, so that the wrong file is told from the damaged one."""

from __future__ import annotations

import gzip
import json
import os
import stat
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from lowtide.errors import BadFile, MalformedProgram

_Read = TypeVar("_Read")


def require_file(path: str | os.PathLike[str], expected: str) -> None:
    """That there is a plain file; else what is there instead, and what was expected."""
    try:
        mode = Path(path).stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        found = "no such file"
    except OSError as error:
        found = f"cannot be read ({error.strerror})"
    else:
        if stat.S_ISREG(mode):
            return
        found = "is a directory" if stat.S_ISDIR(mode) else "is a device, a pipe or a socket"
    raise BadFile(f"{os.fspath(path)}: {found}; expected {expected}")


def write_artifact(path: str | os.PathLike[str], kind: str, version: int, body: Any) -> None:
    """Write whole or not at all: a reader never sees half a file."""
    target = Path(path)
    text = json.dumps({"lowtide": kind, "version": version, "body": body}, separators=(",", ":"))
    partial = target.with_name(target.name + ".partial")
    partial.write_bytes(gzip.compress(text.encode(), compresslevel=1, mtime=0))
    partial.replace(target)


def read_artifact(path: str | os.PathLike[str], kind: str, version: int) -> Any:
    """The body of a file of this kind, no newer than `version`."""
    source = Path(path)
    try:
        raw = source.read_bytes()
    except OSError as error:
        raise BadFile(f"{source}: cannot be read ({error.strerror}); expected a Lowtide {kind}") from None
    try:
        document = json.loads(gzip.decompress(raw))
    except (OSError, EOFError, zlib.error, ValueError):
        raise BadFile(f"{source}: damaged, or not a Lowtide {kind}; make it again") from None
    if not isinstance(document, dict) or document.get("lowtide") != kind:
        found = document.get("lowtide") if isinstance(document, dict) else None
        raise BadFile(f"{source}: expected a Lowtide {kind}, found {found or 'something else'}")
    if not isinstance(document.get("version"), int) or document["version"] > version:
        raise BadFile(
            f"{source}: {kind} of version {document.get('version')}, this Lowtide reads up to {version}; "
            "upgrade lowtide or make the file again"
        )
    return document.get("body")


def load_artifact(path: str | os.PathLike[str], kind: str, version: int, parse: Callable[[Any], _Read]) -> _Read:
    """What `parse` makes of the body of a file of this kind; a body it cannot make sense of is a damaged file."""
    body = read_artifact(path, kind, version)
    try:
        return parse(body)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, MalformedProgram) as error:
        raise BadFile(f"{path}: damaged {kind} ({type(error).__name__}: {error}); make it again") from None
