"""What tests that send signals to processes share."""

from __future__ import annotations

import signal


def ignores_nothing() -> None:
    """The tests may run under `nohup`, or in the background of a script, and what is ignored is inherited."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
