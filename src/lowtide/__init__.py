"""Lowtide: know every byte of a TensorFlow training step before it runs, and make it fit.

Importing this does not import TensorFlow; the names below load what they need when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lowtide.api import Prediction, fit_within, function, largest_batch, predict, release
    from lowtide.errors import Infeasible, LowtideError
    from lowtide.plan import Plan
    from lowtide.runs import measure

__version__ = "0.1.0"

_HOME = {
    "Infeasible": "lowtide.errors",
    "LowtideError": "lowtide.errors",
    "Plan": "lowtide.plan",
    "Prediction": "lowtide.api",
    "fit_within": "lowtide.api",
    "function": "lowtide.api",
    "largest_batch": "lowtide.api",
    "measure": "lowtide.runs",
    "predict": "lowtide.api",
    "release": "lowtide.api",
}

__all__ = [
    "Infeasible",
    "LowtideError",
    "Plan",
    "Prediction",
    "__version__",
    "fit_within",
    "function",
    "largest_batch",
    "measure",
    "predict",
    "release",
]


_PARTS = ("keras", "plan")
"""Modules of which more than one name is for users."""


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _PARTS:
        return import_module(f"lowtide.{name}")
    raise AttributeError(f"module 'lowtide' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
