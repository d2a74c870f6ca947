"""Every error Lowtide raises on purpose. Each message says what, what was expected, what came, and the way out."""

from __future__ import annotations


class LowtideError(Exception):
    """The root: catch this to catch anything Lowtide says on purpose. `exit_code` is what the command returns."""

    exit_code = 2


class BadUse(LowtideError):
    """An argument or an input is not of the form it has to be."""


class BadFile(LowtideError):
    """A file is missing, damaged, of another kind, or from a newer Lowtide."""


class NothingTrains(LowtideError):
    """The script ended without a training step."""


class NotCapturable(LowtideError):
    """The training step exists but cannot be made into a Program."""


class MalformedProgram(LowtideError):
    """A Program breaks one of the rules of `lowtide.program.verify`."""


class Infeasible(LowtideError):
    """No plan meets the budget. `smallest_bytes` is the smallest budget that one does meet."""

    exit_code = 3

    def __init__(self, message: str, smallest_bytes: int) -> None:
        super().__init__(message)
        self.smallest_bytes = smallest_bytes
