"""Searching, or proving, in a second process: a job on its standard input, an answer on its standard output.

Not `multiprocessing`: forking a process that holds TensorFlow's threads is unsafe, and spawning runs the user's
script again. A child of our own does neither. If it cannot start, the first process searches alone.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import monotonic
from typing import cast

from lowtide.plan import windows
from lowtide.plan.anneal import HOT, Annealer, Found
from lowtide.plan.exact import prove
from lowtide.plan.game import Game
from lowtide.plan.profile import row_profile
from lowtide.plan.regress import Regress, playable
from lowtide.plan.retreat import lowest_rows
from lowtide.plan.stages import Stages
from lowtide.plan.wide import tape_for

GRACE = 5.0
EXACT_LARGEST = 30  # groups: what the whole game as one model is still good for in seconds
STAGES_LARGEST = 30_000  # variables of the model that proves a bound
REGRESS_SHARE = 0.55  # of the time, where the stages may prove more
START = 0.15  # seconds until a child has started: no use for less than a few of these


@dataclass(frozen=True, slots=True)
class Job:
    """Search from the row `order`; or, with a `known_cost`, prove a bound on the cost within the budget.

    The known cost is that of `order` if that is within the budget, and infinite if no row is known to be.
    """

    game: Game
    order: tuple[int, ...]
    budget: int
    until: float  # by the monotonic clock, which processes of one machine share
    seed: int
    enough: float  # a row within the budget that costs no more ends the search
    moves: int  # of the walk; `until` only ends it early
    hot: float = HOT
    known_cost: float | None = None
    windows: bool = False  # plan windows of the row anew instead of walking
    retreat: bool = False  # look for a row backwards in time instead of walking

    @property
    def in_budget(self) -> bool:
        return self.known_cost is not None and self.known_cost < float("inf")


@dataclass(frozen=True, slots=True)
class Answer:
    found: list[Found]
    bound: float = 0.0


def answer(job: Job) -> Answer:
    """Do a job here and now."""
    if job.windows:
        return Answer(windows.improve(job.game, job.order, job.budget, job.until, job.seed))
    if job.retreat:
        peak = max(row_profile(job.game, job.order).bytes)
        return Answer([found_row(job.game, row) for row in lowest_rows(job.game, job.budget, peak, job.until)])
    return Answer(search(job)) if job.known_cost is None else _proof(job, job.known_cost)


def _proof(job: Job, known_cost: float) -> Answer:
    """A bound by whichever means there is time for, and the rows met on the way. The search backwards comes first."""
    game, base = job.game, sum(job.game.cost)
    found: list[Found] = []
    bound = base
    if playable(game):
        share = REGRESS_SHARE if known_cost < float("inf") and worth_stages(game, job.budget, known_cost) else 1.0
        until = monotonic() + share * (job.until - monotonic())
        outcome = Regress(game, job.budget).run(until, known_cost - base)
        bound = base + outcome.bound
        if outcome.row is not None:
            found = [found_row(game, outcome.row)]
            known_cost = found[0][1]
    if known_cost < float("inf") and bound < known_cost and worth_stages(game, job.budget, known_cost):
        bound = max(bound, Stages(game, job.budget, known_cost).bound(job.until - monotonic()))
    left = job.until - monotonic()
    if bound >= known_cost or game.end > EXACT_LARGEST or any(game.reuse) or left < 0.2 or not job.in_budget:
        return Answer(found, bound)
    proof = prove(game, job.budget, job.order, left, workers=1)
    found += [] if proof.order is None else [found_row(game, proof.order)]
    return Answer(found, bound if proof.copies_cut else max(bound, proof.bound))


def provable(game: Game, budget: int, known_cost: float) -> bool:
    """Whether a model is small, and likely to say something."""
    return game.end <= EXACT_LARGEST or worth_stages(game, budget, known_cost)


def worth_stages(game: Game, budget: int, known_cost: float) -> bool:
    """Whether the model of stages is small, and likely to say something: most of the game is on one path."""
    stages = Stages(game, budget, known_cost)
    return stages.size() < STAGES_LARGEST and 2 * len(stages.path) > game.end


def found_row(game: Game, row: tuple[int, ...]) -> Found:
    return max(row_profile(game, row).bytes), sum(game.cost[g] for g in row), row


def walker(job: Job) -> Annealer:
    """An annealer about to begin where the job says."""
    return Annealer(tape_for(job.game, job.order, job.budget), Random(job.seed), job.enough, job.hot)


def search(job: Job) -> list[Found]:
    """Every plan worth keeping that annealing finds: (peak, cost, order)."""
    annealer = walker(job)
    annealer.run(job.moves, job.until)
    return annealer.found


def start(job: Job) -> subprocess.Popen[bytes] | None:
    """`search(job)` in a child; None if this machine will not start one."""
    root = str(Path(__file__).parents[2])
    code = f"import sys; sys.path.insert(0, {root!r}); from lowtide.plan.worker import main; main()"
    try:
        child = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
    except OSError:
        return None
    assert child.stdin is not None
    try:
        pickle.dump(job, child.stdin, protocol=pickle.HIGHEST_PROTOCOL)
        child.stdin.close()
    except OSError:
        child.kill()
        return None
    return child


def collect(child: subprocess.Popen[bytes] | None) -> Answer:
    """What the child found; nothing if it died."""
    if child is None:
        return Answer([])
    assert child.stdout is not None
    data = child.stdout.read()
    child.wait(GRACE)
    return cast(Answer, pickle.loads(data)) if data else Answer([])


def abandon(child: subprocess.Popen[bytes]) -> None:
    """End a child whose answer is no longer wanted."""
    assert child.stdout is not None
    child.kill()
    child.stdout.close()
    child.wait(GRACE)


def main() -> None:
    done = answer(cast(Job, pickle.load(sys.stdin.buffer)))
    pickle.dump(done, sys.stdout.buffer, protocol=pickle.HIGHEST_PROTOCOL)
