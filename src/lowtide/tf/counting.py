"""The variables that put a CPU on the allocator that counts. Imports no TensorFlow.

TensorFlow reads them when it opens its devices. In a watched run they are Lowtide's, not the user's, so they are in the
environment from the import of TensorFlow until then, and the script's subprocesses do not see them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

USE_BFC = "TF_CPU_ALLOCATOR_USE_BFC"
LIMIT = "TF_CPU_BFC_MEM_LIMIT_IN_MB"
_ours: dict[str, str] = {}


def variable(name: str) -> str:
    """What TensorFlow has read, or will; "" for nothing."""
    return _ours.get(name) or os.environ.get(name, "")


def keep_for_tensorflow(names: Iterable[str]) -> None:
    """Called first in a watched run: these come from Lowtide."""
    _ours.update({name: os.environ.pop(name) for name in names if name in os.environ})


def show() -> None:
    """TensorFlow is there, and its devices are not open: it will look."""
    os.environ.update({name: value for name, value in _ours.items() if name not in os.environ})


def hide() -> None:
    """TensorFlow has looked. What the script has set itself stays."""
    for name, value in _ours.items():
        if os.environ.get(name) == value:
            del os.environ[name]
