"""The plans found so far that no other plan beats in both peak and cost: what keeps answers monotone in the budget."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from lowtide.plan.problem import Point, Schedule


class Archive:
    """Points by rising peak and falling cost."""

    def __init__(self) -> None:
        self._peaks: list[int] = []
        self._points: list[Point] = []

    def add(self, peak: int, cost: float, schedule: Schedule) -> bool:
        """Keep this plan unless one with no more bytes costs no more; forget those that it beats."""
        known = self.within(peak)
        if known is not None and known.cost <= cost:
            return False
        i = bisect_left(self._peaks, peak)
        j = i
        while j < len(self._points) and self._points[j].cost >= cost:
            j += 1
        self._peaks[i:j] = [peak]
        self._points[i:j] = [Point(peak, cost, peak, schedule)]
        return True

    def within(self, budget: int) -> Point | None:
        """The cheapest plan whose peak is within `budget`."""
        i = bisect_right(self._peaks, budget)
        return self._points[i - 1] if i else None

    def smallest(self) -> Point:
        return self._points[0]

    def __iter__(self) -> Iterator[Point]:
        return iter(self._points)

    def __len__(self) -> int:
        return len(self._points)
