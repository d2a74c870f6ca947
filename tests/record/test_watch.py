"""When the thread that samples a run takes a look."""

from __future__ import annotations

from lowtide.tf.watch import FASTEST, WHILE_STEPPING, is_due


def test_samples_are_rare_while_steps_come() -> None:
    looked = 10.0
    times = [looked + n * FASTEST for n in range(1, 5)]
    assert not any(is_due(now, looked, stepped=now - FASTEST / 2) for now in times)
    assert is_due(looked + WHILE_STEPPING, looked, stepped=looked + WHILE_STEPPING)


def test_what_the_script_does_after_its_steps_is_looked_at_as_soon_as_none_comes() -> None:
    assert is_due(FASTEST, looked=0.0, stepped=0.0)
