"""A command and the child that runs the script: what is sent to the one reaches the other, and both end together."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

PASSED_ON = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
"""What schedulers, terminals and people send to a run. What it means is the script's affair."""
TOLD_TWICE_SECONDS = 0.5
"""Two interrupts within this time are one that came by two ways; people press more slowly."""
_PR_SET_PDEATHSIG = 1


@contextlib.contextmanager
def passed_on(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """Whatever of `PASSED_ON` comes in here goes to the child, each time, and does nothing else.

    What is ignored (`nohup`) stays so, for the child too, and a handler that the caller has set is left to the caller.
    """

    def pass_on(number: int, frame: FrameType | None) -> None:
        child.send_signal(number)

    ours = threading.current_thread() is threading.main_thread()  # no other may set handlers
    numbers = [getattr(signal, name) for name in PASSED_ON if ours and hasattr(signal, name)]
    taken = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, pass_on)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def pass_on_interrupt(child: subprocess.Popen[bytes]) -> None:
    """Ctrl-C is the script's affair. A terminal tells every process of the group in front of it, so one in ours has
    heard of it; where there is none, it was sent to us alone."""
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(child.pid) != os.getpgrp() or not _in_front_of_a_terminal():
            child.send_signal(signal.SIGINT)


def _in_front_of_a_terminal() -> bool:
    try:
        with Path("/dev/tty").open("rb", buffering=0) as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def hear_an_interrupt_once() -> None:
    """Called first in a child: of one Ctrl-C it may be told by whoever pressed it and by the command. The second is no
    interrupt of what the first has begun, a checkpoint being saved, say."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # it is ignored, and stays so
        return
    heard = -math.inf

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal heard
        before, heard = heard, time.monotonic()
        if heard - before > TOLD_TWICE_SECONDS:
            signal.default_int_handler(number, frame)

    signal.signal(signal.SIGINT, interrupt)


def end_with(parent: int) -> None:
    """Called first in a child: when the parent is killed, this process is sent SIGTERM. On Linux; else nothing."""
    if sys.platform != "linux":
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    try:
        os.kill(parent, 0)
    except ProcessLookupError:  # it was killed before it could be asked for
        signal.raise_signal(signal.SIGTERM)
    except PermissionError:
        pass
