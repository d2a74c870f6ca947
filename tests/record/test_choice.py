"""Which steps are recorded in full, told from steps alone."""

from __future__ import annotations

from lowtide.tf.choice import FIRST, HIGH, LARGER, MOST_FIRST, MOST_HIGH, MOST_LARGER, MOST_TRACED, TRIES, WARM, Choice


def chosen(steps: list[tuple[str, object, int]], detail_steps: int = 2) -> list[str]:
    """The reason for each call (kind, key, peak) of a run; a full record sees the peak that the step has."""
    choice = Choice(detail_steps)
    reasons = []
    for kind, key, peak in steps:
        reason = choice.begins(kind, key)
        choice.ended(kind, key, peak, peak if reason else None)
        reasons.append(reason)
    return reasons


def test_a_steady_run_is_recorded_at_first_and_after_warm_up() -> None:
    assert chosen([("fit", 1, 100)] * 8) == [FIRST, "", WARM, WARM, "", "", "", ""]
    assert chosen([("fit", 1, 100)] * 8, detail_steps=0) == [FIRST] + [""] * 7


def test_a_new_high_is_caught_when_it_comes_again() -> None:
    late = chosen([("fit", 1, 100)] * 6 + [("fit", 1, 150)] * 3)
    assert late[6:] == ["", HIGH, ""]


def test_a_high_that_never_comes_right_after_itself_is_not_waited_for_without_end() -> None:
    """One step in ten is higher, and it is the one after it that is recorded."""
    choice = Choice(0)
    reasons = []
    for number in range(200):
        reasons.append(choice.begins("fit", 1))
        choice.ended("fit", 1, 150 if number % 10 == 5 else 100, 100 if reasons[-1] else None)
    assert reasons.count(HIGH) == TRIES


def test_something_new_is_caught_the_first_time() -> None:
    run = [("fit", 1, 100)] * 6 + [("predict", 2, 900)] + [("fit", 1, 100)]
    assert chosen(run)[6:] == [FIRST, ""]


def test_a_call_that_is_given_more_than_ever_is_caught_the_first_time() -> None:
    choice = Choice(0)
    sizes = [8, 8, 8, 80, 80, 8, *range(100, 100 + 10 * MOST_LARGER, 10), 10_000]
    reasons = [choice.begins("function", 1, given=size) for size in sizes]
    assert reasons == [FIRST, "", "", LARGER, "", "", *[LARGER] * (MOST_LARGER - 1), "", ""]


def test_a_function_that_is_traced_at_every_step_is_not_recorded_at_every_step() -> None:
    choice = Choice(0)
    assert sum(map(bool, [choice.traced() for _ in range(100)])) == MOST_TRACED


def test_a_leak_does_not_have_every_step_recorded() -> None:
    leak = chosen([("fit", 1, 100 + 5 * number) for number in range(1000)])
    assert leak.count(HIGH) == MOST_HIGH
    assert sum(map(bool, leak)) == MOST_HIGH + 3
    highs = [number for number, reason in enumerate(leak) if reason]
    assert highs[-1] > 40  # and not all of them at the beginning


def test_a_script_that_calls_many_things_does_not_have_each_recorded() -> None:
    assert chosen([("call", number, 1) for number in range(100)]).count(FIRST) == MOST_FIRST


def test_of_kinds_that_take_turns_the_highest_ranked_is_the_step() -> None:
    turns = [("next", 1, 1), ("gradient", 2, 1), ("update", 3, 1)] * 8
    reasons = dict.fromkeys(range(3), 0)
    for number, reason in enumerate(chosen(turns)):
        reasons[number % 3] += reason == WARM
    assert reasons == {0: 0, 1: 0, 2: 2}


def test_what_the_run_does_later_is_recorded_too() -> None:
    assert chosen([("fit", 1, 100)] * 20 + [("call", 2, 50)] * 20).count(WARM) == 4
