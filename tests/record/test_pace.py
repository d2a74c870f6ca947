"""When the thread that samples a run takes a look, and how it waits until then."""

from __future__ import annotations

import threading
import time

import pytest

from lowtide.tf.pace import A_WHILE, FASTEST, LULL, SLOWEST, Alarm, Pace

STEP = LULL / 5


def after_steps(seconds: float) -> tuple[Pace, float]:
    """A pace after so many seconds of steps, and the time then; the last sample was at the beginning."""
    pace = Pace()
    for number in range(round(seconds / STEP) + 1):
        pace.stepped(number * STEP)
    return pace, round(seconds / STEP) * STEP


def test_a_sample_is_soon_where_no_steps_come() -> None:
    assert Pace().due(0.0) == FASTEST


def test_each_step_puts_the_sample_off_once_steps_have_come_for_a_while() -> None:
    pace, now = after_steps(A_WHILE + 1)
    pace.sampled(now)
    assert pace.due(now) == now + LULL
    pace.stepped(now + STEP)
    assert pace.due(now + STEP) == pytest.approx(now + STEP + LULL)


def test_a_lull_brings_the_sample() -> None:
    pace, now = after_steps(A_WHILE + 1)
    pace.sampled(now)
    later = now + LULL + 0.01
    assert not pace.steps_come(later)
    assert pace.due(later) <= later


def test_however_quick_the_steps_there_is_a_sample_before_long() -> None:
    pace, now = after_steps(A_WHILE + 4 * SLOWEST)
    assert pace.due(now) == SLOWEST


def test_what_follows_a_few_quick_steps_is_looked_at_often() -> None:
    pace, now = after_steps(A_WHILE / 2)
    pace.sampled(now)
    assert pace.due(now) == now + FASTEST


def test_steps_that_are_far_apart_put_nothing_off() -> None:
    pace = Pace()
    for number in range(100):
        pace.stepped(number * 2 * LULL)
    assert not pace.steps_come(99 * 2 * LULL)


def rings_of(alarm: Alarm, seconds: float) -> tuple[threading.Thread, threading.Event]:
    rang = threading.Event()

    def wait() -> None:
        alarm.wait(seconds)
        rang.set()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread, rang


def test_an_alarm_that_is_put_off_does_not_ring_at_its_first_time() -> None:
    alarm = Alarm()
    until = time.monotonic() + 0.4
    thread, rang = rings_of(alarm, 0.2)
    while time.monotonic() < until:
        alarm.set(3600)
        assert not rang.is_set()
    alarm.set(0)
    thread.join(60)
    assert rang.is_set()
    alarm.close()


def test_an_alarm_whose_file_was_closed_by_the_script_still_waits() -> None:
    alarm = Alarm()
    alarm.close()
    thread, rang = rings_of(alarm, 0.001)
    thread.join(60)
    assert rang.is_set()
