"""One writer a recording: a lock that is the process's own, and gone with it however it ends.

The lock is on a small file beside the recording, which is there while the run is: a lock on the recording itself would
meet SQLite's own where the system makes both of one kind (NFS).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from lowtide.errors import BadFile

_TAKEN = (errno.EAGAIN, errno.EACCES)
"""What the system says of a lock that another process has."""


@contextlib.contextmanager
def claimed(path: str | os.PathLike[str]) -> Iterator[None]:
    """No other process begins a recording in this file in here. Where nothing can be locked, nothing is refused."""
    lock = Path(f"{os.fspath(path)}-lock")
    held = _lock(lock, path)
    try:
        yield
    finally:
        if held is not None:
            with contextlib.suppress(OSError):
                lock.unlink()
            os.close(held)


def _lock(lock: Path, path: str | os.PathLike[str]) -> int | None:
    """The lock, as an open file; None where there are none."""
    while True:
        try:
            opened = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError:  # whoever creates the recording says what is wrong there
            return None
        try:
            fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(opened, lock):
                os.ftruncate(opened, 0)
                os.write(opened, str(os.getpid()).encode())
                return opened
        except OSError as error:
            if error.errno in _TAKEN:
                who = os.read(opened, 20).decode(errors="replace") or "unknown"
                os.close(opened)
                raise BadFile(
                    f"{path}: is being written by another run (process {who}); give another file with --out"
                ) from None
            return opened  # a full disk, or a file system without locks
        os.close(opened)


def _is_still(opened: int, lock: Path) -> bool:
    """Whether the file of that name is the one that was opened: its last holder may have removed it in between."""
    try:
        return os.path.samestat(os.fstat(opened), lock.stat())
    except FileNotFoundError:
        return False
