"""Program + budget -> Plan: the schedule, proven on the simulator before it is believed.

The planner works on requested bytes, a limit bites on chunks. So the plan is made for a target below the budget,
simulated with its copies on the allocator's model, and made again for a smaller target until its chunks fit; or, where
the allocator has the budget and no more, until it refuses nothing. Infeasible is an answer too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from math import fsum
from time import monotonic
from typing import NamedTuple

from lowtide.errors import Infeasible
from lowtide.plan.account import Account, Move
from lowtide.plan.bridge import Costs, problem_of, with_copies
from lowtide.plan.costs import op_seconds
from lowtide.plan.in_place import written_in_place
from lowtide.plan.offers import offers
from lowtide.plan.planner import Planner
from lowtide.plan.problem import Point, Report, Schedule, Smallest, silent
from lowtide.plan.room import PIPELINES, Fit, fit_within, is_all_there_is, smallest_region
from lowtide.program import Program
from lowtide.simulate import Steps, Timeline, simulate, tidy_order
from lowtide.simulate.step import LOOSE_ENDS, has_loose_ends
from lowtide.units import format_size

ATTEMPTS = 6
SETTLE = 0.0005  # of the step's time: a round of search that saves less twice is the last
VARIANTS = 4  # plans of the same cost that are tried before more is paid
TRY_BELOW = (0.01, 0.03)  # of the target: tried before searching again
TRY_ABOVE = (0.1, 0.06, 0.03, 0.01)  # of the least bytes: where those do not fit in pieces
BY_LUCK = 0.25  # of those: pieces that fall so well that another search may not find the like
OF_THOSE = 8  # of the others, looked at again to name the smallest budget
ALSO_LOOKED_AT = 12  # plans for the budget itself, for the same
LATE = 1.0  # seconds that trying them may take when the time is up
LAST_SHARE = 0.3  # of the time: with less left, a plan that fits is good enough
CLOSE = 0.003  # of the target: no use to search for so little more
FIRST_STEP_DOWN = 0.005  # of the target, when a plan fits in bytes and not in the allocator's pieces; then doubled
SPARE = 0.004  # of the budget, for what the simulator does not know
SPARE_BYTES = 1 << 15  # and so many bytes
SMALL = 16 << 20  # bytes: of fewer, how an allocator cuts its pieces is percents
SPARE_OF_SMALL = 0.06  # of a budget that is small
BATCHES_AHEAD, MOST_AHEAD = 2, 8  # batches that an input pipeline may have ready besides the one that trains
FOR_MORE_AHEAD = 0.02  # of a budget: how many tf.data makes ready it tunes by itself, so where they are small, for more


class Pattern(NamedTuple):
    """How a step runs, whatever the sizes of its tensors."""

    order: tuple[int, ...]
    schedule: Schedule


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be executed, and what it needs and costs.

    `order` is the base order of the Program's ops and `schedule` the positions in it that execute, repeats
    included. `program` is the Program with those copies in it, in the order that it runs.
    """

    budget: int
    order: tuple[int, ...]
    schedule: Schedule
    program: Program = field(repr=False)
    timeline: Timeline = field(repr=False)
    before: Timeline = field(repr=False)
    seconds: float = 0.0
    seconds_before: float = 0.0
    gap: float = 0.0
    moves: tuple[Move, ...] = ()

    @property
    def peak(self) -> int:
        return self.timeline.chunk_peak

    @property
    def pattern(self) -> Pattern:
        return Pattern(self.order, self.schedule)

    @property
    def slowdown(self) -> float:
        """Predicted extra time, as a fraction of the step's."""
        return self.seconds / self.seconds_before - 1 if self.seconds_before else 0.0

    def __repr__(self) -> str:
        """In one line: what it has, beside its numbers, is as long as the step."""
        again = len(self.schedule) - len(set(self.schedule))
        peaks = f"{format_size(self.peak)} at the peak instead of {format_size(self.before.chunk_peak)}"
        paid = f"{again:,} ops computed again, {self.slowdown:+.1%} of a step"
        return f"Plan for {format_size(self.budget)}: {peaks}, {paid}"


def make_plan(
    program: Program,
    budget: int,
    batch: int | None = None,
    seconds: float = 20.0,
    report: Report = silent,
    costs: Costs = op_seconds,
    more_ahead: int = 0,
    like: Pattern | None = None,
) -> Plan:
    """The cheapest plan found whose chunks stay within `budget`, residents included; `Infeasible` if there is none.

    `seconds` is a limit: the search ends before that when it no longer improves, and then it is the same every time.
    `more_ahead` batches more than usual may come to lie beside the step. `like` is how a step of the same ops runs: if
    that fits this one, too, there is no search.
    """
    size = program.batch if batch is None else batch
    deadline = monotonic() + seconds
    program = written_in_place(program)
    if like is not None:
        known = _Search(program, size, budget, costs, more_ahead, like.order).as_it_is(like.schedule)
        if known is not None:
            return known
    search = _Search(program, size, budget, costs, more_ahead)
    best: Plan | None = None
    for attempt in range(ATTEMPTS):
        left = deadline - monotonic()
        if (best or search.second_best) is not None and left < LAST_SHARE * seconds:
            break
        try:
            solution = search.planner.solve(search.target, max(1.0, left / 2), report, SETTLE)
        except Infeasible:
            break
        plan = search.first_that_fits(solution.lower_bound)
        if plan is not None and (best is None or plan.seconds < best.seconds):
            best = plan
        if not search.retarget(attempt):
            break
    return best or search.second_best or search.tightest(deadline, report)


def spare_in(program: Program, batch: int, budget: int) -> int:
    """Bytes of a budget that a plan leaves alone."""
    return int(budget * _spare_share(program, budget)) + SPARE_BYTES + bytes_ahead(program, batch, budget)


def _spare_share(program: Program, budget: int) -> float:
    return SPARE_OF_SMALL if budget < SMALL else LOOSE_ENDS if has_loose_ends(program) else SPARE


def batches_ahead(program: Program, batch: int, budget: int) -> int:
    """How many batches may come to lie beside the step that has one."""
    one = max(1, sum(program.argument_bytes(batch)))
    return min(MOST_AHEAD, max(BATCHES_AHEAD, int(FOR_MORE_AHEAD * budget / one)))


def bytes_ahead(program: Program, batch: int, budget: int) -> int:
    return batches_ahead(program, batch, budget) * sum(program.argument_bytes(batch))


def budget_for(program: Program, batch: int, peak: int) -> int:
    """The smallest budget that a plan with this peak is within."""
    needed = peak + SPARE_BYTES + bytes_ahead(program, batch, peak)
    return int(needed / (1 - _spare_share(program, needed))) + 1


class _Search:
    """One step, one batch, one budget: what a plan has to fit, and what a schedule comes to."""

    def __init__(
        self, program: Program, size: int, budget: int, costs: Costs, more_ahead: int,
        order: Sequence[int] | None = None,
    ) -> None:
        self.program, self.size, self.budget = program, size, budget
        self.ahead = batches_ahead(program, size, budget) + more_ahead
        self.order = tidy_order(program, size) if order is None else order
        self.before = simulate(program, size, self.order)
        self.account = Account(program, size, self.order, self.before)
        problem = problem_of(program, size, self.order, costs)
        self.planner = Planner(problem)
        self.tried: dict[Schedule, None] = {}
        self.second_best: Plan | None = None  # of those that go through unless batches come late in a step
        self.second_rank = (len(PIPELINES), 0.0)  # how early they have to come for that one, and what it costs
        self.met, self.enough = False, 0  # was the target met as it was; bytes of the largest plan that fits
        self.limited = is_all_there_is(program.chunks, budget)
        self.spare = spare_in(program, size, budget)
        self.room = budget if self.limited else budget - self.spare
        self.unlimited = self.before.chunk_peak  # of the last schedule looked at, where the allocator can grow
        self.outside = self.unlimited - self.planner.base.peak  # in use and not in the game, and rounded up
        self.target = min(self.planner.base.peak, budget - self.spare - self.outside)

    def as_it_is(self, schedule: Schedule) -> Plan | None:
        """The plan with this schedule, if that fits whatever comes beside it."""
        nodes, least = self.planner.problem.nodes, self.planner.base.cost
        cost = fsum(nodes[node].cost for node in schedule)
        plan = self.plan(schedule, cost, max(0.0, 1 - least / cost) if cost else 0.0)
        return plan if plan is not None and plan.peak <= self.room else None

    def first_that_fits(self, bound: float) -> Plan | None:
        """Of the plans known for the target and a little less, the cheapest that the simulator lets through.

        Which one that is is partly luck, so a few are tried before more is paid.
        """
        for at, point in self._candidates():
            if point is None or point.schedule in self.tried:
                continue
            self.tried[point.schedule] = None
            plan = self.plan(point.schedule, point.cost, max(0.0, 1 - bound / point.cost) if point.cost else 0.0)
            if not at:
                self.outside = self.unlimited - point.peak
            if plan is not None and plan.peak <= self.room:
                self.met, self.enough = at <= VARIANTS, max(self.enough, point.peak)
                return plan
        self.met = False
        return None

    def _candidates(self) -> Iterator[tuple[int, Point | None]]:
        yield 0, self.planner.within(self.target)
        for seed in range(1, VARIANTS + 1):
            yield seed, self.planner.variant(self.target, seed)
        for below in TRY_BELOW:
            yield VARIANTS + 1, self.planner.within(int(self.target * (1 - below)))

    def retarget(self, attempt: int) -> bool:
        """Aim at chunks just within the budget, by what the last plan's were; False if that promises nothing more."""
        aim = min(self.planner.base.peak, self.budget - self.spare - self.outside)
        if not self.met:
            aim = min(aim, int(self.target * (1 - FIRST_STEP_DOWN * 2**attempt)))
        self.target = aim
        return aim > self.enough * (1 + CLOSE)

    def tightest(self, deadline: float, report: Report) -> Plan:
        """The plan with the least bytes, or one of nearly as few, whose chunks fit; else Infeasible."""
        smallest = self.planner.smallest(max(1.0, deadline - monotonic()), report, SETTLE)
        late = max(deadline, monotonic()) + LATE
        tried = []
        for point in self._tight(smallest):
            tried.append(point.schedule)
            plan = self.plan(point.schedule, point.cost, 1.0)
            if plan is not None and plan.peak <= self.room:
                return plan
            if monotonic() > late and smallest.schedule in tried:
                break
        if self.second_best is not None:
            return self.second_best
        others = [schedule for schedule in self.tried if schedule not in set(tried)]
        raise self.infeasible(smallest, [*tried, *others[-ALSO_LOOKED_AT:], self.planner.problem.base])

    def _tight(self, smallest: Smallest) -> Iterator[Point]:
        """The plans of the least bytes, cheapest first: pieces may fit where bytes do not. Then others like them."""
        above = [int(smallest.peak * (1 + share)) for share in TRY_ABOVE]
        points = [self.planner.within(allowed) for allowed in above]
        least = Point(smallest.peak, smallest.cost, smallest.peak, smallest.schedule)
        sizes = (smallest.peak, *reversed(above))
        others = (self.planner.variant(size, seed) for seed in range(1, VARIANTS + 1) for size in sizes)
        seen: set[Schedule] = set()
        for point in chain(points, [least], others):
            if point is not None and point.schedule not in seen:
                seen.add(point.schedule)
                yield point

    def plan(self, schedule: Schedule, cost: float, gap: float) -> Plan | None:
        """What the schedule comes to; None when an allocator that cannot grow refuses it something, or might."""
        planned = with_copies(self.program, self.order, schedule)
        steps = Steps(planned, self.size)
        self.unlimited = steps.unlimited.chunk_peak
        found: Fit | None = Fit(steps.unlimited, 0)
        if self.limited:
            found = fit_within(steps, planned.chunks or (), self.ahead)
        if found is None:
            return None
        base, timeline = self.planner.base.cost, found.timeline
        plan = Plan(
            self.budget, tuple(self.order), schedule, planned, timeline, self.before, cost, base, gap,
            self.account.moves(self.planner.problem, schedule, timeline),
        )  # fmt: skip
        if not found.beside:
            return plan
        if (found.beside, cost) < self.second_rank:
            self.second_best, self.second_rank = plan, (found.beside, cost)
        return None

    def infeasible(self, tightest: Smallest, schedules: Sequence[Schedule]) -> Infeasible:
        """The answer when there is no plan: a budget for which one of these is one, the op that sets it, and offers."""
        plans = [Steps(with_copies(self.program, self.order, schedule), self.size) for schedule in schedules]
        timelines = [plan.unlimited for plan in plans]
        by_peak = sorted(range(len(plans)), key=lambda i: timelines[i].chunk_peak)
        best, *next_best = by_peak[int(len(plans) * BY_LUCK) :]
        smallest = budget_for(self.program, self.size, timelines[best].chunk_peak)
        if self.limited:
            few = [plans[i] for i in (best, *next_best[: OF_THOSE - 1])]
            smallest = smallest_region(few, self.ahead, self.budget, max(smallest, self.budget + 1))
        room = timelines[best].chunk_peak * self.budget // smallest  # with as much to spare as the smallest budget has
        besides = " (more if the script keeps tensors beside its step)" if self.limited else ""
        offered = ", ".join(offers(plans[best].program, timelines[best], room))
        return Infeasible(
            f"no plan found within {format_size(self.budget)}: the smallest budget reached is "
            f"{format_size(smallest)}{besides}, set by {self.planner.problem.label(tightest.node)}; "
            f"what changes the numbers would help: {offered or 'nothing that was found'}",
            smallest,
        )
