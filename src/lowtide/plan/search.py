"""The search on one Game: first rows by eviction, then rounds of annealing in two processes.

A round is a number of moves, not of seconds, and its two walks are joined before the next begins: the same game, seed
and budget give the same rows in the same sequence on any machine. The clock only ends the sequence early.
Each round is longer than the one before and starts from the best row. The search ends when a row costs
what the bound says, when rounds no longer improve it, or when the time is up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from time import monotonic

from lowtide.plan import worker
from lowtide.plan.anneal import Annealer, Found
from lowtide.plan.archive import Archive
from lowtide.plan.cut import Cut, best_cut, facts_of_game
from lowtide.plan.evict import fit
from lowtide.plan.game import Game
from lowtide.plan.profile import row_profile
from lowtide.plan.retreat import retreats
from lowtide.plan.segments import chain_row
from lowtide.plan.wide import tape_for

FIRST_MOVES = 4_000  # of the first round; each is half as long again as the one before
GROWTH = 1.5
THOROUGH = 40  # moves a group in the first round of a search that is to use all its time
QUIET, STUCK = 2, 5  # rounds in a row that improve by less than asked end the search; and while there is no plan
HOTS = (0.5, 2.0)  # temperatures of the two walks
HOTTEST = 8.0  # of a walk from the plain order, where budgets are tight: their plans lie far apart
ANNEAL_LARGEST = 12_000  # groups: longer rows are not annealed
CUT_SHARE = 0.2  # of the time left
CUT_LARGEST = 12_000  # nodes or groups: the work grows with their square
VARIANT_MOVES = 300
CHAIN_TRIES, CHAIN_SHARE = 4, 0.3  # budgets tried; of the time
FIT_LEAST = 0.5  # seconds for the first rows even when the time is up: no plan at all is worse
FIT_SHARE = 0.6  # of the time, at most, for the first rows
RETREAT_SHARE = 0.8  # of the time left, for the first row of a tight budget
TIGHT_MOVES = 300  # a group, in every round for a tight budget: it takes many to come down to it at all


@dataclass(frozen=True, slots=True)
class Goal:
    """What to look for: a row within `budget` that costs at most `enough`, by `deadline`.

    Rounds that improve the cost by less than the share `settle` end the search before that.
    """

    budget: int
    deadline: float
    enough: float
    settle: float = 0.0

    def after(self, share: float) -> float:
        """The moment when this share of the time left will be gone."""
        now = monotonic()
        return now + share * (self.deadline - now)


class Search:
    """The rows known of one game, cheapest for each peak, by the game's own figures."""

    def __init__(self, game: Game, order: Sequence[int], seed: int, processes: int) -> None:
        self.game, self.order, self.seed, self.processes = game, tuple(order), seed, processes
        self.rows = Archive()
        self.walks = 0
        self.tight: set[int] = set()  # budgets that eviction does not come down to
        self.keep(self.order)

    def keep(self, row: Sequence[int]) -> None:
        peak = max(row_profile(self.game, row).bytes)
        self.rows.add(peak, self.cost(row), tuple(row))

    def cost(self, row: Sequence[int]) -> float:
        return self.game.fixed + sum(self.game.cost[g] for g in row)

    def best(self, budget: int) -> float:
        """The cost of the cheapest row within `budget`."""
        known = self.rows.within(budget)
        return float("inf") if known is None else known.cost

    def reached(self, goal: Goal) -> bool:
        known = self.rows.within(goal.budget)
        return known is not None and known.cost <= goal.enough

    def evict(self, goal: Goal) -> None:
        """First rows: greedily, and from what the best cut drops.

        A search that is to settle has them whatever the clock says, unless the game is very long.
        """
        until = float("inf")
        if self.game.end > ANNEAL_LARGEST or not goal.settle:
            until = monotonic() + max(FIT_LEAST, (goal.deadline - monotonic()) * FIT_SHARE)
        self.keep(fit(self.game, self.order, goal.budget, until))
        cut = self.cut(goal)
        if cut.drop and monotonic() < until:
            self.keep(fit(self.game, self.order, goal.budget, until, cut))
        if self.game.end > ANNEAL_LARGEST:
            self.squeeze(goal)
        elif self.rows.within(goal.budget) is None:
            self.chain(goal)

    def chain(self, goal: Goal) -> None:
        """Where eviction does not come down to the budget: as a chain of blocks, if it is one, as far as that goes."""
        until = goal.after(CHAIN_SHARE)
        low, high = goal.budget, self.rows.smallest().peak
        budget = low
        for _ in range(CHAIN_TRIES):
            row = chain_row(self.game, self.order, budget) if monotonic() < until else None
            if row is not None:
                self.keep(row)
                high = min(high, budget)
            else:
                low = budget
            if self.rows.within(goal.budget) is not None or high - low <= goal.budget // 64:
                return
            budget = (low + high) // 2

    def retreat(self, goal: Goal) -> bool:
        """Where no row is within the budget: a walk from the plain order, and meanwhile a beam backwards in time.

        If the walk comes down to the budget, the beam is not waited for. If not, the budget counts as tight.
        It is the first round then; returns whether it was.
        """
        if self.rows.within(goal.budget) is not None or not retreats(self.game):
            return False
        row, moves = self.rows.smallest().schedule, self._moves(goal, 0)
        beam = replace(self.job(row, replace(goal, deadline=goal.after(RETREAT_SHARE)), moves), retreat=True)
        child = worker.start(beam) if self.processes > 1 else None
        self.take(worker.search(self.job(self.order, goal, moves, HOTS[1])))
        if self.rows.within(goal.budget) is None:
            self.tight.add(goal.budget)
            self.take((worker.answer(beam) if child is None else worker.collect(child)).found)
        elif child is not None:
            worker.abandon(child)
        return True

    def cut(self, goal: Goal) -> Cut:
        """The best cut; of a very long game, none."""
        if self.game.end > CUT_LARGEST:
            return Cut(sum(self.game.cost))
        return best_cut(facts_of_game(self.game), goal.budget, goal.after(CUT_SHARE))

    def squeeze(self, goal: Goal) -> None:
        """Where the budget was not met, find by bisection what can be."""
        low = goal.budget
        while self.rows.within(goal.budget) is None and monotonic() < goal.deadline:
            high = self.rows.smallest().peak
            middle = (low + high) // 2
            if high - low <= goal.budget // 256:
                return
            self.keep(fit(self.game, self.order, middle, goal.deadline))
            if self.rows.smallest().peak > middle:
                low = middle

    def anneal(self, goal: Goal, say: Callable[[], None], turns: range = range(1 << 30)) -> None:
        """Rounds of two walks each: from the best row, and from the plain order or, in turn, hot from the best."""
        if self.game.end > ANNEAL_LARGEST:
            return
        quiet = 0
        for turn in turns:
            before = self._standing(goal)
            patience = STUCK if self.rows.within(goal.budget) is None else QUIET
            if self.reached(goal) or quiet >= patience or goal.deadline - monotonic() < 0.02:
                return
            say()
            self._round(goal, turn, self._moves(goal, turn))
            quiet = quiet + 1 if self._standing(goal) >= before * (1 - goal.settle) and goal.settle else 0

    def _moves(self, goal: Goal, turn: int) -> int:
        if goal.budget in self.tight and not goal.settle:
            return TIGHT_MOVES * self.game.end
        first = FIRST_MOVES if goal.settle else max(FIRST_MOVES, THOROUGH * self.game.end)
        return int(first * GROWTH**turn)

    def _standing(self, goal: Goal) -> float:
        """What a round should lower: the cost of a row within the budget, or the smallest peak while there is none."""
        best = self.best(goal.budget)
        return best if best < float("inf") else float(self.rows.smallest().peak) * 1e30

    def _round(self, goal: Goal, turn: int, moves: int) -> None:
        best = (self.rows.within(goal.budget) or self.rows.smallest()).schedule
        tight = goal.budget in self.tight
        other = self.order if tight or turn % 2 == 0 else best
        several = self.processes > 1 and goal.deadline - monotonic() > 3 * worker.START
        hots = (HOTS[0], HOTTEST if tight and turn % 2 == 0 else HOTS[1])
        starts = [best, other] if several else [best]
        jobs = [self.job(row, goal, moves, hot) for row, hot in zip(starts, hots, strict=False)]
        children = [worker.start(job) for job in jobs[1:]]
        self.take(worker.search(jobs[0]))
        for child in children:
            self.take(worker.collect(child).found)

    def job(self, row: tuple[int, ...], goal: Goal, moves: int, hot: float = HOTS[0]) -> worker.Job:
        """A walk with a seed of its own."""
        self.walks += 1
        enough = goal.enough - self.game.fixed
        return worker.Job(self.game, row, goal.budget, goal.deadline, self.seed + self.walks, enough, moves, hot)

    def variant(self, budget: int, seed: int) -> tuple[int, ...] | None:
        """Another row within `budget` that costs what the cheapest known does: some executions in other places."""
        known = self.rows.within(budget)
        if known is None or self.game.end > ANNEAL_LARGEST:
            return None
        tape = tape_for(self.game, known.schedule, budget)
        annealer = Annealer(tape, Random(seed))
        tape.set_budget(budget)
        for _ in range(VARIANT_MOVES + len(tape.at)):
            mark = len(tape.log)
            if not annealer.move_shift() or tape.excess:
                tape.undo(mark)
        return tape.order()

    def take(self, found: Sequence[Found]) -> None:
        for peak, cost, row in found:
            self.rows.add(peak, cost + self.game.fixed, row)
