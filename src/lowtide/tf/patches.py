"""Several methods of classes replaced at once, for a block or for as long as somebody keeps the block open."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lowtide.tf import compat

Patch = tuple[type, str, Callable[[Callable[..., Any]], Callable[..., Any]]]
"""(class, method, what takes the method and gives its stand-in)."""


@contextlib.contextmanager
def patched(patches: Iterable[Patch]) -> Iterator[None]:
    """Inside the block each method is its stand-in."""
    with contextlib.ExitStack() as stack:
        for owner, name, make in patches:
            stack.enter_context(compat.replaced(owner, name, make))
        yield
