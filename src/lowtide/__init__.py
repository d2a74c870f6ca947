"""Lowtide: know every byte of a TensorFlow training step before it runs, and make it fit.

Importing this does not import TensorFlow; the names below load what they need when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lowtide.api import Prediction, largest_batch, predict
    from lowtide.errors import LowtideError

__version__ = "0.1.0"

_HOME = {
    "LowtideError": "lowtide.errors",
    "Prediction": "lowtide.api",
    "largest_batch": "lowtide.api",
    "predict": "lowtide.api",
}

__all__ = ["LowtideError", "Prediction", "__version__", "largest_batch", "predict"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'lowtide' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
