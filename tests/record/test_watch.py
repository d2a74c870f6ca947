"""How often the thread that samples a run takes a look."""

from __future__ import annotations

from lowtide.tf.watch import A_WHILE, FASTEST, WHILE_STEPPING, Pace


def test_samples_are_rare_once_steps_have_come_for_a_while_and_as_long_as_they_come() -> None:
    pace, steps = Pace(0.0, 0), 0
    waits = []
    for half_second in range(1, 12):
        steps += 10
        waits.append(pace.wait(half_second * WHILE_STEPPING, steps))
    assert waits[-1] == WHILE_STEPPING
    assert pace.wait(12 * WHILE_STEPPING, steps) == FASTEST  # none came


def test_what_follows_a_few_quick_steps_is_looked_at_often() -> None:
    pace = Pace(0.0, 0)
    assert pace.wait(A_WHILE / 2, 50) == FASTEST
