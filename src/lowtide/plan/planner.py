"""The planner: a budget in, the cheapest schedule found within it out, or the smallest budget there is.

Every schedule is replayed by `check`, which shares no code with the search, before it is believed. Plans go
into an archive, so one Planner never asks more for a larger budget. Where the problem is long the search plays a
coarse game of it, and the problem itself only if that finds nothing; bounds are always those of the problem itself.
"""

from __future__ import annotations

from dataclasses import replace
from time import monotonic

from lowtide.errors import Infeasible
from lowtide.plan import worker
from lowtide.plan.archive import Archive
from lowtide.plan.bound import peak_floor
from lowtide.plan.check import check
from lowtide.plan.coarsen import coarsen
from lowtide.plan.contract import contract
from lowtide.plan.cut import Facts, best_cut, facts_of_problem
from lowtide.plan.exhaust import impossible
from lowtide.plan.game import Game, prune
from lowtide.plan.order import best_order
from lowtide.plan.problem import Point, Problem, Progress, Report, Smallest, Solution, silent
from lowtide.plan.profile import row_profile
from lowtide.plan.regress import Regress, playable
from lowtide.plan.search import CUT_LARGEST, Goal, Search
from lowtide.plan.windows import fits
from lowtide.units import format_size

COARSE_FROM = 400  # groups: shorter games are played as they are
SHORTER = 0.7  # times the groups: a coarse game that is not is no help
FIRST_GAME = 0.7  # of the time for the coarse game, if it does not find a plan
GLANCE = 0.08  # of the time for a first search backwards, where the game is small and plain
ROUNDS_BEFORE_PROOF = 2
LONG_WALK = 1.5  # temperature that the walk beside a proof begins with
PROOF_SHARE, TRY_SHARE = 0.85, 0.5  # of the time left, for a proof that is likely, and one that is not
NEAR, FAR = 1.02, 1.1  # times the bound: a proof is likely, and is out of reach
WINDOWS_LARGEST = 2_000  # groups
WINDOWS_SHARE = 0.6  # of the time left, for a child that plans windows anew
BOUND_SHARE = 0.2  # of the time left, for the first bound
POINTS = 24  # of a curve, at most


class Planner:
    """Everything known of one Problem: its base schedule, and the best plans and bounds found so far."""

    def __init__(self, problem: Problem, seed: int = 0, processes: int = 2) -> None:
        self.problem, self.processes = problem, processes
        start = monotonic()
        self.base = check(problem, problem.base)
        self.replay = monotonic() - start  # seconds that believing one plan takes
        self.floor = peak_floor(problem)
        self.archive = Archive()
        self.archive.add(self.base.peak, self.base.cost, problem.base)
        self.bounds: dict[int, float] = {}  # a budget, and a cost that no schedule within it is below
        self.facts: Facts | None = None  # what bounds are made from
        self.game = contract(problem)
        order = best_order(self.game, range(self.game.end))
        self.searches = [Search(self.game, order, seed, processes)]
        if self.game.end > COARSE_FROM:
            coarse = coarsen(self.game, order, max(row_profile(self.game, order).bytes))
            if coarse.end < SHORTER * self.game.end:
                self.searches.insert(0, Search(coarse, range(coarse.end), seed, processes))

    def solve(self, budget: int, seconds: float = 10.0, report: Report = silent, settle: float = 0.0) -> Solution:
        """The cheapest schedule found within `budget`; `Infeasible` if none was.

        `settle` is the share of the cost that a round of search has to save to be worth another: zero uses
        all the time there is, unless the plan is proven optimal.
        """
        goal = Goal(budget, monotonic() + seconds - 3 * self.replay, self.base.cost, settle)
        if budget < self.floor.peak:
            self.smallest(seconds, report, settle)
            raise self._infeasible(budget, proven=True)
        if self._best(budget) > self.base.cost:
            self._search(goal, report)
        known = self.within(budget)
        if known is None:
            proven = self._is_impossible(budget) or impossible(self.game, budget)
            if proven:
                self.smallest(goal.deadline - monotonic(), report, settle)
            raise self._infeasible(budget, proven)
        checked = check(self.problem, known.schedule, budget)
        bound = max(bound for at, bound in [(budget, self.base.cost), *self.bounds.items()] if at >= budget)
        return Solution(known.schedule, checked.peak, checked.cost, min(bound, checked.cost))

    def smallest(self, seconds: float = 10.0, report: Report = silent, settle: float = 0.0) -> Smallest:
        """The smallest peak that a search of `seconds` reaches, and the node that executes there."""
        low = min(search.rows.smallest().peak for search in self.searches)
        if low > self.floor.peak and seconds > 0:
            goal = Goal(self.floor.peak, monotonic() + seconds - 3 * self.replay, float("inf"), settle)
            self._search(goal, report)
        for search in self.searches:
            self._believe(search.game, search.rows.smallest())
        point = self.archive.smallest()
        return Smallest(point.peak, point.schedule, point.cost, self._set_by(point), self.floor.peak)

    def curve(self, seconds: float = 30.0, report: Report = silent, settle: float = 0.0) -> list[Point]:
        """Bytes against time: the plans found that no other beats, by rising budget.

        A third of the time goes down to the smallest budget, the rest to a few budgets between.
        """
        low = self.smallest(seconds / 3, report, settle).peak
        steps = 8
        for i in range(1, steps):
            budget = low + (self.base.peak - low) * i // steps
            self.solve(budget, seconds * 2 / 3 / (steps - 1), report, settle)
        for i in range(POINTS + 1):
            self.within(low + (self.base.peak - low) * i // POINTS)
        return list(self.archive)

    def within(self, budget: int) -> Point | None:
        """The cheapest plan known within `budget`, replayed."""
        for search in self.searches:
            row, known = search.rows.within(budget), self.archive.within(budget)
            if row is not None and (known is None or row.cost < known.cost):
                self._believe(search.game, row)
        return self.archive.within(budget)

    def variant(self, budget: int, seed: int) -> Point | None:
        """Another plan within `budget` that costs what the cheapest does, for those who judge by more than bytes."""
        search = min(self.searches, key=lambda search: search.best(budget))
        row = search.variant(budget, seed)
        if row is None:
            return None
        schedule = prune(self.problem, search.game.expand(row))
        checked = check(self.problem, schedule)
        return Point(budget, checked.cost, checked.peak, schedule) if checked.peak <= budget else None

    # -- the search ---------------------------------------------------------------------------------------

    def _best(self, budget: int) -> float:
        """The cost of the cheapest plan within `budget`, by what the games say."""
        known = self.archive.within(budget)
        costs = [search.best(budget) for search in self.searches]
        return min([*costs, float("inf") if known is None else known.cost])

    def _search(self, goal: Goal, report: Report) -> None:
        """Rows towards the budget, a bound on the cost within it, and rounds until they meet or the goal says so.

        A goal for which every cost is enough is one for few bytes: no bounds then.
        """
        watch = _Watch(self, goal.budget, report)
        end = goal.deadline
        for search in self.searches:
            here = end if search.game is self.game else monotonic() + FIRST_GAME * (end - monotonic())
            goal = replace(goal, deadline=end if search.rows.within(goal.budget) else here)
            watch.say("evict")
            search.evict(goal)
            if goal.enough < float("inf") and goal.budget not in self.bounds:
                self._bound(goal)
            if search.game is self.game and not goal.settle and goal.enough < float("inf"):
                watch.say("backwards")
                self._glance(search, goal)
            if self._is_impossible(goal.budget) and goal.enough < float("inf"):
                return
            watch.say("retreat")
            turns = range(int(search.retreat(goal)), ROUNDS_BEFORE_PROOF)
            goal = replace(goal, enough=max(goal.enough, self.bounds.get(goal.budget, 0.0)))
            say = lambda: watch.say("anneal")  # noqa: E731
            if search.game is self.game and not goal.settle:
                search.anneal(goal, say, turns)
                goal = self._prove(search, goal, watch)
            search.anneal(goal, say)
            if self._best(goal.budget) < float("inf"):
                if goal.deadline < end:
                    search.anneal(replace(goal, deadline=end), say)
                return

    def _bound(self, goal: Goal) -> None:
        if len(self.problem.nodes) <= CUT_LARGEST:
            self.facts = self.facts or facts_of_problem(self.problem)
            self.bounds[goal.budget] = best_cut(self.facts, goal.budget, goal.after(BOUND_SHARE)).bound

    def _glance(self, search: Search, goal: Goal) -> None:
        """A short search backwards: often the optimum, else a good place to begin; or the proof that there is none."""
        if not playable(self.game) or not self.game.exact or search.reached(goal):
            return
        until = goal.after(GLANCE)
        outcome = Regress(self.game, goal.budget).run(until, search.best(goal.budget) - self.base.cost)
        if outcome.row is not None:
            search.take([worker.found_row(self.game, outcome.row)])
        self._proven(goal.budget, self.base.cost + outcome.bound)

    def _proven(self, budget: int, bound: float) -> None:
        self.bounds[budget] = max(bound, self.bounds.get(budget, 0.0))

    def _is_impossible(self, budget: int) -> bool:
        return self.bounds.get(budget) == float("inf")

    def _prove(self, search: Search, goal: Goal, watch: _Watch) -> Goal:
        """Walk on from the best row while a child proves a bound, or plans windows of it anew; stop when they meet."""
        known = search.rows.within(goal.budget)
        cost = float("inf") if known is None else known.cost
        if cost <= goal.enough or goal.enough == float("inf"):
            return goal
        job = search.job((known or search.rows.smallest()).schedule, goal, 1 << 60, LONG_WALK)
        task = self._task(job, cost)
        child = None if task is None else worker.start(task)
        if task is None or child is None:
            return goal
        watch.say("prove")
        walk = worker.walker(job)
        walk.run(job.moves, task.until, stop=lambda: child.poll() is not None)
        search.take(walk.found)
        answer = worker.collect(child)
        search.take(answer.found)
        self._proven(goal.budget, answer.bound)
        return replace(goal, enough=max(goal.enough, answer.bound))

    def _task(self, job: worker.Job, known_cost: float) -> worker.Job | None:
        """What a child is to do: prove a bound, if there is hope; else plan windows of the row anew."""
        game, known, left = self.game, known_cost < float("inf"), job.until - monotonic()
        if left < 4 * worker.START or self.processes < 2:
            return None
        if known and known_cost > FAR * self.bounds.get(job.budget, 0.0) > 0 and playable(game):
            return None
        likely = game.exact and known and worker.provable(game, job.budget, known_cost)
        if game.exact and (likely or playable(game)):
            near = likely or known_cost < NEAR * self.bounds.get(job.budget, 0.0)
            share = PROOF_SHARE if near else TRY_SHARE
            return replace(job, until=job.until - (1 - share) * left, known_cost=known_cost)
        if known and fits(game) and game.end <= WINDOWS_LARGEST:
            return replace(job, until=job.until - (1 - WINDOWS_SHARE) * left, windows=True)
        return None

    def _believe(self, game: Game, row: Point) -> None:
        """A plan is what the checker says of it when it has replayed what the row expands to."""
        schedule = prune(self.problem, game.expand(row.schedule))
        checked = check(self.problem, schedule)
        self.archive.add(checked.peak, checked.cost, schedule)

    def _set_by(self, point: Point) -> int:
        """The node to name for a peak: the one that no schedule gets around, if that is the reason."""
        if point.peak == self.floor.peak:
            return self.floor.node
        return point.schedule[check(self.problem, point.schedule).at]

    def _infeasible(self, budget: int, proven: bool) -> Infeasible:
        smallest, floor, label = self.smallest(0.0), self.floor, self.problem.label
        there = "there is no plan within it" if proven else "no plan was found within it, which does not prove it"
        return Infeasible(
            f"budget {budget} bytes ({format_size(budget)}): {there}; the smallest reached is "
            f"{smallest.peak} bytes ({format_size(smallest.peak)}), set by {label(smallest.node)}; "
            f"{label(floor.node)} alone needs {floor.peak}",
            smallest.peak,
        )


class _Watch:
    """Tells `report` what is going on and what is known so far."""

    def __init__(self, planner: Planner, budget: int, report: Report) -> None:
        self.planner, self.budget, self.report, self.start = planner, budget, report, monotonic()

    def say(self, stage: str) -> None:
        cost = self.planner._best(self.budget)
        self.report(Progress(stage, monotonic() - self.start, None if cost == float("inf") else cost))


def solve(problem: Problem, budget: int, seconds: float = 10.0, report: Report = silent) -> Solution:
    """The cheapest schedule found within `budget` bytes in about `seconds`; `Infeasible` if none was."""
    return Planner(problem).solve(budget, seconds, report)


def curve(problem: Problem, seconds: float = 30.0, report: Report = silent) -> list[Point]:
    """Bytes against time for every budget from the base peak to the smallest found."""
    return Planner(problem).curve(seconds, report)
