"""Timeline -> how high memory stands, moment by moment, by category: what a chart draws.

The naive program sums `timeline.alive_at(moment)` by category for every moment. This one goes through the buffers once,
and thins out the moments: of each stretch it keeps the lowest and the highest, so no peak is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lowtide.simulate.timeline import CATEGORIES, Timeline

POINTS = 1200


@dataclass(frozen=True, slots=True)
class Levels:
    """Requested bytes by category at each of `moments`, and the op that allocated last (an index into `makers`)."""

    moments: tuple[int, ...]
    by_category: dict[str, tuple[int, ...]]
    makers: tuple[int | None, ...]

    @property
    def totals(self) -> list[int]:
        return [sum(column) for column in zip(*self.by_category.values(), strict=True)]


def levels(timeline: Timeline, points: int = POINTS) -> Levels:
    """The levels of a step at about `points` moments, the peak's among them."""
    changes: dict[int, dict[str, int]] = {}
    made: dict[int, int] = {}
    for buffer in timeline.buffers:
        _add(changes, max(buffer.start, -1), buffer.category, buffer.bytes)
        if buffer.stop is not None:
            _add(changes, buffer.stop, buffer.category, -buffer.bytes)
        if buffer.start >= 0:
            made[buffer.start] = buffer.maker
    moments = sorted(changes)
    table: dict[str, list[int]] = {category: [] for category in CATEGORIES}
    makers: list[int | None] = []
    now, maker = dict.fromkeys(CATEGORIES, 0), None
    for moment in moments:
        for category, change in changes[moment].items():
            now[category] += change
        maker = made.get(moment, maker)
        makers.append(maker)
        for category in CATEGORIES:
            table[category].append(now[category])
    totals = [sum(column) for column in zip(*table.values(), strict=True)]
    kept = thinned(totals, points, always=[i for i, moment in enumerate(moments) if moment == timeline.peak_at])
    return Levels(
        tuple(moments[i] for i in kept),
        {category: tuple(column[i] for i in kept) for category, column in table.items()},
        tuple(makers[i] for i in kept),
    )


def thinned(values: Sequence[float], points: int, always: Sequence[int] = ()) -> list[int]:
    """Indices of about `points` of the values: first, last, and the lowest and highest of each stretch."""
    count = len(values)
    if count <= points:
        return list(range(count))
    kept = {0, count - 1, *always}
    stretches = max(1, points // 2)
    for stretch in range(stretches):
        inside = range(count * stretch // stretches, count * (stretch + 1) // stretches)
        kept.add(min(inside, key=values.__getitem__))
        kept.add(max(inside, key=values.__getitem__))
    return sorted(kept)


def _add(changes: dict[int, dict[str, int]], moment: int, category: str, size: int) -> None:
    at = changes.setdefault(moment, {})
    at[category] = at.get(category, 0) + size
