"""The plain values that the user's modules end up with: flags, numbers, names. Imports no TensorFlow.

Code like `if DEBUG:` has a branch that never ran. Which one tells the value of the flag, and so a line that cannot
have run is never blamed.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lowtide.tf.places import is_users_file

LONGEST = 200
"""Longer texts are data, not switches."""
Plain = bool | int | float | str | None


def switches() -> dict[str, dict[str, Plain]]:
    """By file: each global that is a flag, a number or a short text; options of `argparse` as "args.name"."""
    found: dict[str, dict[str, Plain]] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and not name.startswith("lowtide") and is_users_file(path := str(Path(file).absolute())):
            found[path] = _plain_values(vars(module))
    return found


def _plain_values(names: Mapping[str, Any]) -> dict[str, Plain]:
    values: dict[str, Plain] = {}
    for name, value in list(names.items()):
        if isinstance(value, Namespace):
            values.update({f"{name}.{key}": part for key, part in vars(value).items() if _is_plain(part)})
        elif not name.startswith("__") and _is_plain(value):
            values[name] = value
    return values


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) < LONGEST)
