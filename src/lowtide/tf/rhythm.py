"""What eager code does in turn: which kind of call follows each. Imports no TensorFlow.

A training loop takes a batch, calls its model, asks its tape and updates. Each of these can be recorded on its own; but
once the loop is known, they are told with the update that they lead to, which costs the loop a third of it.
"""

from __future__ import annotations

from lowtide.record import STEP_KINDS

SETTLED = 30
"""So often in a row one kind has followed another when it is taken to do so again."""


class Rhythm:
    """Is told of every call as it begins."""

    def __init__(self) -> None:
        self._last = ""
        self._next: dict[str, tuple[str, int]] = {}

    def comes(self, kind: str) -> None:
        expected, times = self._next.get(self._last, ("", 0))
        self._next[self._last] = (kind, times + 1 if kind == expected else 1)
        self._last = kind

    def leads_to(self, kind: str) -> str:
        """The kind that follows this one, where that is settled and it ranks higher; else ""."""
        following, times = self._next.get(kind, ("", 0))
        ranks_higher = bool(following) and STEP_KINDS.index(following) < STEP_KINDS.index(kind)
        return following if times >= SETTLED and ranks_higher else ""
