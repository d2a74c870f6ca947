"""Which steps are recorded in full. Imports no TensorFlow.

The first call of each thing that the run calls, and calls that are new in another way: a function traced again, or
given more than ever before; a few after warm-up; and the one after a step that went higher than any that was recorded
in full. So the peak of the run is caught, not just that of a chosen window: what reaches a new high once mostly does so
by being new, and what reaches it again and again is caught the next time. A step that is like the others until it runs
(`fit`, given one longer batch by its dataset) is not foreseen.
"""

from __future__ import annotations

from collections import deque

from lowtide.record import STEP_KINDS

FIRST, WARM, HIGH = "first call", "after warm-up", "new high"
TRACED, LARGER = "new trace", "larger input"
STRETCH = "no step"
"""Of what is recorded between steps: `lowtide.tf.stretches`."""
WARM_UP = 2
"""Calls before those that count as warmed up: the first traces, the second may still move buffers."""
MOST_FIRST, MOST_HIGH, MOST_TRACED, MOST_LARGER = 8, 12, 6, 6
"""Full records for each of these reasons in a run, at most."""
MORE = 1.01
"""By so much more than ever before, at least."""
TRIES = 3
"""How often the step after a new high is recorded for it: what comes once an epoch need not be in any of them."""
RECENT = 6
"""Steps that say what the run is doing now: of several kinds that take turns, the highest ranked is its step."""


class Choice:
    """Is told of every step as it begins and ends."""

    def __init__(self, detail_steps: int) -> None:
        self._detail_steps = detail_steps
        self._calls: dict[object, int] = {}
        self._warm: dict[object, int] = {}
        self._recent: deque[int] = deque(maxlen=RECENT)
        self._wanted: set[object] = set()
        self.highest = 0
        """The most that the device had in any full record."""
        self._firsts = self._highs = self._traced = self._larger = 0
        self._given: dict[object, int] = {}
        self._level = self._missed = 0

    def begins(self, kind: str, key: object, free: bool = True, one_call: bool = True, given: int = 0) -> str:
        """The reason to record this call in full, or "".

        `free`: no other record is being made. `one_call`: the call is the whole step, not just the end of one. `given`:
        bytes handed to it.
        """
        count = self._calls[key] = self._calls.get(key, 0) + 1
        larger = given > MORE * self._given.get(key, 0)
        if larger:
            self._given[key] = given
        if not free:
            return ""
        if count == 1 and kind != "next" and self._firsts < MOST_FIRST:
            self._firsts += 1
            return FIRST
        if larger and self._larger < MOST_LARGER:
            self._larger += 1
            return LARGER
        return self._reason(kind, key, count) if one_call else ""

    def wants(self, key: object) -> bool:
        """Whether the next call of this is to be recorded in full."""
        return key in self._wanted

    def traced(self) -> str:
        """The same in the middle of a call that turned out to need a new trace, and has not run yet."""
        self._traced += 1
        return TRACED if self._traced <= MOST_TRACED else ""

    def follows(self, kind: str, key: object) -> str:
        """The same for the step that begins where this one has ended. The first to begin so is the first seen whole."""
        count = self._calls.get(key, 0) + 1
        if count == 2 and kind != "next" and self._firsts < MOST_FIRST:
            self._firsts += 1
            return FIRST
        return self._reason(kind, key, count)

    def _reason(self, kind: str, key: object, count: int) -> str:
        if key in self._wanted:
            self._wanted.discard(key)
            self._highs += 1
            return HIGH
        rank = STEP_KINDS.index(kind)
        done = self._warm.get(key, 0)
        if count > WARM_UP and done < self._detail_steps and rank <= min(self._recent, default=rank):
            self._warm[key] = done + 1
            return WARM
        return ""

    def ended(self, kind: str, key: object, peak: int | None, in_full: int | None) -> None:
        """A step ended with this peak; `in_full` is the peak of its full record, when there is one."""
        self._recent.append(STEP_KINDS.index(kind))
        if in_full is not None:
            self.highest = max(self.highest, in_full)
            self._give_up_if_missed(in_full)
        elif peak is not None and self._is_high(peak):
            self._wanted.add(key)
            self._level = max(self._level, peak)

    def recorded(self, peak: int) -> None:
        """A full record of something that is no step had this peak."""
        self.highest = max(self.highest, peak)

    def _give_up_if_missed(self, in_full: int) -> None:
        if in_full * MORE >= self._level:
            self._level = self._missed = 0
            return
        self._missed += 1
        if self._missed >= TRIES:
            self.highest = max(self.highest, self._level)
            self._level = self._missed = 0

    def _is_high(self, peak: int) -> bool:
        """By enough, and by more the more there were: a leak makes every step a new high."""
        over = MORE if self._highs < MOST_HIGH // 2 else 1.1
        return self._highs < MOST_HIGH and peak > self.highest * over
