"""The planner: a budget in, the cheapest schedule found within it out, or the smallest budget there is.

Every schedule is replayed by `check`, which shares no code with the search, before it is believed. Plans go
into an archive, so one Planner never asks more for a larger budget.
"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from time import monotonic

from lowtide.errors import Infeasible
from lowtide.plan import worker
from lowtide.plan.anneal import Found
from lowtide.plan.archive import Archive
from lowtide.plan.bound import peak_floor
from lowtide.plan.check import check
from lowtide.plan.contract import contract
from lowtide.plan.evict import fit
from lowtide.plan.game import prune
from lowtide.plan.order import best_order
from lowtide.plan.problem import Point, Problem, Progress, Report, Smallest, Solution, silent
from lowtide.plan.stages import Stages
from lowtide.units import format_size

FIT_SHARE = 0.6  # of the time, at most, for the first plan
FIRST_SHARE = 0.35  # of what is left, for walking before proving
ANNEAL_LARGEST = 12_000  # groups: longer rows are not annealed
HOTS = (0.5, 2.0)  # temperatures of the walks of the two processes
WIDE_FRONT = 2_000  # groups: beyond this only the ends of a walk's curve are replayed
PROVE_LARGEST = 30_000  # variables of the bound's model


class Planner:
    """Everything known of one Problem: its base schedule, and the best plans found so far."""

    def __init__(self, problem: Problem, seed: int = 0, processes: int = 2) -> None:
        self.problem, self.seed, self.processes = problem, seed, processes
        start = monotonic()
        self.base = check(problem, problem.base)
        self.replay = monotonic() - start  # seconds that believing one plan takes
        self.floor = peak_floor(problem)
        self.archive = Archive()
        self.archive.add(self.base.peak, self.base.cost, problem.base)
        self.game = contract(problem)
        self.order = best_order(self.game, range(self.game.end))
        self.rows = Archive()  # the same plans as rows of the game: where the search begins again
        self.walks = 0
        self._keep(self.order)

    def solve(self, budget: int, seconds: float = 10.0, report: Report = silent) -> Solution:
        """The cheapest schedule found within `budget`; `Infeasible` if none was."""
        deadline = monotonic() + seconds - 3 * self.replay
        known = self.archive.within(budget)
        bound = self.base.cost
        if budget < self.floor.peak:
            self.smallest(seconds, report)
        elif known is None or known.cost > bound:
            bound = self._search(budget, deadline, report, self.base.cost)
            known = self.archive.within(budget)
        if known is None:
            raise self._infeasible(budget)
        checked = check(self.problem, known.schedule, budget)
        return Solution(known.schedule, checked.peak, checked.cost, min(max(bound, self.base.cost), checked.cost))

    def smallest(self, seconds: float = 10.0, report: Report = silent) -> Smallest:
        """The smallest peak that a search of `seconds` reaches, and the node that executes there."""
        if self.archive.smallest().peak > self.floor.peak:
            self._search(self.floor.peak, monotonic() + seconds, report, float("inf"))
        point = self.archive.smallest()
        return Smallest(point.peak, point.schedule, point.cost, self._set_by(point), self.floor.peak)

    def curve(self, seconds: float = 30.0, report: Report = silent) -> list[Point]:
        """Bytes against time: the plans found that no other beats, by rising budget.

        A third of the time goes down to the smallest budget, the rest to a few budgets between.
        """
        low = self.smallest(seconds / 3, report).peak
        steps = 8
        for i in range(1, steps):
            budget = low + (self.base.peak - low) * i // steps
            self.solve(budget, seconds * 2 / 3 / (steps - 1), report)
        return list(self.archive)

    # -- the search ---------------------------------------------------------------------------------------

    def _search(self, budget: int, deadline: float, report: Report, enough: float) -> float:
        """Fill the archives with plans towards `budget`; a bound on the cost within it, proven on the way.

        A plan within the budget that costs at most `enough` ends the search.
        """
        watch = _Watch(self, budget, monotonic(), report)
        watch.say("evict")
        row = fit(self.game, self.order, budget, watch.start + (deadline - watch.start) * FIT_SHARE)
        self._keep(row)
        if self.game.end > ANNEAL_LARGEST:
            self._squeeze(budget, deadline)
            return self.base.cost
        half = monotonic() + (deadline - monotonic()) * FIRST_SHARE
        self._anneal(budget, half, watch, enough)
        return self._prove(budget, deadline, watch, enough)

    def _squeeze(self, budget: int, deadline: float) -> None:
        """Where `budget` was not met, find by bisection what can be."""
        low = budget
        while self.rows.within(budget) is None and monotonic() < deadline:
            high = self.rows.smallest().peak
            middle = (low + high) // 2
            if high - low <= budget // 256:
                return
            self._keep(fit(self.game, self.order, middle, deadline))
            if self.rows.smallest().peak > middle:
                low = middle

    def _anneal(self, budget: int, until: float, watch: _Watch, enough: float) -> None:
        """Two walks at once: from the best row known, and from the plain order once there is a plan to beat."""
        watch.say("anneal")
        several = until - monotonic() > 3 * worker.START
        best = self._best_row(budget)
        other = self.order if self.rows.within(budget) is not None or self.walks == 0 else best
        rows = [best] + [other] * (self.processes - 1) * several
        jobs = [self._job(row, budget, until, enough, HOTS[i % 2]) for i, row in enumerate(rows)]
        children = [worker.start(job) for job in jobs[1:]]
        self._take(worker.search(jobs[0]), budget)
        for child in children:
            self._take(worker.collect(child).found, budget)

    def _job(self, row: tuple[int, ...], budget: int, until: float, enough: float, hot: float = HOTS[0]) -> worker.Job:
        """A walk with a seed of its own."""
        self.walks += 1
        return worker.Job(self.game, row, budget, until, self.seed + self.walks, enough, hot)

    def _prove(self, budget: int, deadline: float, watch: _Watch, enough: float) -> float:
        """Walk on from the best row while a child proves a bound; stop when they meet."""
        known, bound = self.rows.within(budget), self.base.cost
        if deadline - monotonic() < 0.05 or (known is not None and known.cost <= enough):
            return bound
        job = self._job(self._best_row(budget), budget, deadline, enough)
        child = self._prover(job, known.cost) if known is not None else None
        if child is not None:
            watch.say("prove")
            walk = worker.walker(job)
            walk.run(deadline, stop=lambda: child.poll() is not None)
            self._take(walk.found, budget)
            answer = worker.collect(child)
            self._take(answer.found, budget)
            bound = max(bound, answer.bound)
            known = self.rows.within(budget)
        if known is None or known.cost > bound:
            self._anneal(budget, deadline, watch, max(enough, bound))
        return bound

    def _prover(self, job: worker.Job, known_cost: float) -> subprocess.Popen[bytes] | None:
        """A child that proves a bound, if its model is small and likely to say something."""
        stages = Stages(self.game, job.budget, known_cost)
        small = self.game.end <= worker.EXACT_LARGEST
        worth = small or (stages.size() < PROVE_LARGEST and 2 * len(stages.path) > self.game.end)
        left = job.until - monotonic()
        if not worth or left < 4 * worker.START or self.processes < 2:
            return None
        return worker.start(replace(job, until=job.until - 0.15 * left, known_cost=known_cost))

    def _best_row(self, budget: int) -> tuple[int, ...]:
        return (self.rows.within(budget) or self.rows.smallest()).schedule

    def _take(self, found: list[Found], budget: int) -> None:
        """Keep what nothing beats; replays cost time, so of large problems only the smallest and the cheapest."""
        front: list[Found] = []
        for item in sorted(found, key=lambda f: (f[0], f[1])):
            if not front or item[1] < front[-1][1]:
                front.append(item)
        if self.game.end > WIDE_FRONT:
            front = [*front[:1], *[item for item in front if item[0] <= budget][-1:]]
        for peak, cost, row in front:
            known = self.rows.within(peak)
            if known is None or known.cost > cost:
                self._keep(row)

    def _keep(self, row: tuple[int, ...]) -> None:
        """Believe a row only after the checker has replayed what it expands to."""
        schedule = prune(self.problem, self.game.expand(row))
        checked = check(self.problem, schedule)
        self.rows.add(checked.peak, checked.cost, row)
        self.archive.add(checked.peak, checked.cost, schedule)

    def _set_by(self, point: Point) -> int:
        """The node to name for a peak: the one that no schedule gets around, if that is the reason."""
        if point.peak == self.floor.peak:
            return self.floor.node
        return point.schedule[check(self.problem, point.schedule).at]

    def _infeasible(self, budget: int) -> Infeasible:
        point, floor, label = self.archive.smallest(), self.floor, self.problem.label
        return Infeasible(
            f"budget {budget} bytes ({format_size(budget)}): no plan was found within it; the smallest reached is "
            f"{point.peak} bytes ({format_size(point.peak)}), set by {label(self._set_by(point))}; "
            f"{label(floor.node)} alone needs {floor.peak}",
            point.peak,
        )


class _Watch:
    """Tells `report` what is going on and what is known so far."""

    def __init__(self, planner: Planner, budget: int, start: float, report: Report) -> None:
        self.planner, self.budget, self.start, self.report = planner, budget, start, report

    def say(self, stage: str) -> None:
        known = self.planner.rows.within(self.budget)
        seconds = monotonic() - self.start
        if known is None:
            self.report(Progress(stage, seconds))
        else:
            self.report(Progress(stage, seconds, known.cost, known.peak))


def solve(problem: Problem, budget: int, seconds: float = 10.0, report: Report = silent) -> Solution:
    """The cheapest schedule found within `budget` bytes in about `seconds`; `Infeasible` if none was."""
    return Planner(problem).solve(budget, seconds, report)


def curve(problem: Problem, seconds: float = 30.0, report: Report = silent) -> list[Point]:
    """Bytes against time for every budget from the base peak to the smallest found."""
    return Planner(problem).curve(seconds, report)
