"""Large neighbourhood search: all of a row is fixed but for a window, and CP-SAT plans that anew within the budget.

Only an execution that is a repeat can be saved, so windows lie about repeats, half of them about the peak besides.
A window that was proven to have nothing better is followed by longer ones, and one that took too long by shorter ones.

Known to be suboptimal: what was dropped before a window cannot be held into it, nor the other way round at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from time import monotonic

from lowtide.plan.anneal import Found
from lowtide.plan.evict import trim
from lowtide.plan.exact import window
from lowtide.plan.game import Game
from lowtide.plan.profile import row_profile

SHORTEST, FIRST, LONGEST = 16, 36, 120  # executions
ONE = 1.0  # seconds for one window, at most
EASY, HARD = 0.3, 0.8  # of that: windows get longer, shorter
LONGER = 1.15
FULL = 0.98  # of the peak: near it


def fits(game: Game) -> bool:
    """Whether the model counts the bytes of this game as they are."""
    return not any(game.reuse)


def improve(game: Game, row: Sequence[int], budget: int, until: float, seed: int) -> list[Found]:
    """Better and better rows from a row within `budget`."""
    rng, best, length = Random(seed), tuple(row), float(FIRST)
    cost, found = sum(game.cost[g] for g in best), []
    while (left := until - monotonic()) > 0.1:
        middle = _repeat(game, best, rng)
        if middle is None:
            break
        low = max(0, middle - rng.randrange(int(length)))
        high = min(len(best), low + int(length))
        start = monotonic()
        new = trim(game, window(game, budget, best, low, high, min(ONE, left)))
        spent = (monotonic() - start) / ONE
        length = min(LONGEST, length * LONGER) if spent < EASY else length
        length = max(SHORTEST, length / LONGER) if spent > HARD else length
        new_cost, peak = sum(game.cost[g] for g in new), max(row_profile(game, new).bytes)
        if peak <= budget and new_cost < cost:
            best, cost = new, new_cost
            found.append((peak, cost, best))
    return found


def _repeat(game: Game, row: Sequence[int], rng: Random) -> int | None:
    """A position of a repeat; every other time one where memory is nearly full, if there is one."""
    seen: set[int] = set()
    repeats = []
    for p, group in enumerate(row):
        if group in seen:
            repeats.append(p)
        seen.add(group)
    if not repeats:
        return None
    if rng.random() < 0.5:
        live = row_profile(game, row).bytes
        full = FULL * max(live)
        repeats = [p for p in repeats if live[p] >= full] or repeats
    return rng.choice(repeats)
