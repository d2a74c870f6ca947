"""Whether a planned step still goes through the allocator as it is now, on a device that has the budget and no more.

Between steps something may have come to lie there (a cache that fills, tensors that the script keeps) or may have moved
(weights that the script sets): less is free, or it is free in other pieces. What would happen is replayed on the
allocator's map before it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from lowtide.plan import Plan
from lowtide.plan.plan import batches_ahead
from lowtide.plan.room import PIPELINES, is_all_there_is
from lowtide.program import Chunk
from lowtide.simulate import Steps
from lowtide.tf import profile

FIRST_STEPS = 8
"""The map is looked at before each of these; then when more or less is in use than ever before, and now and then."""
SHARE = 0.01
"""Of the time: what looking now and then may take."""
SMALL_PIECE = 0.0005
"""Of the budget: free pieces of less do not tell one map from another."""
MOST_KNOWN = 32
"""Maps that are kept as known to do."""


class Room:
    """What the device has for a plan's step, as far as that was looked at."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._batch_bytes = sum(plan.program.argument_bytes(plan.timeline.batch))
        self._most = plan.timeline.chunk_resident  # in use before a step that was found to go through
        self._trusted = 0  # in use: up to here there is no better plan, whatever the map says
        self._known: list[tuple[int, ...]] = []  # free pieces, the largest first, with which it was found to do
        self._usual: set[int] = set()
        self._looks, self._again_at = 0, 0.0
        self.has_run = False  # the plan's step, since it was planned
        self._steps: Steps | None = None
        self._beside = 0  # the worst of PIPELINES that it goes beside, when it was first looked at

    @classmethod
    def of(cls, plan: Plan | None) -> Room | None:
        """None where the allocator can grow."""
        limited = plan is not None and is_all_there_is(plan.program.chunks, plan.budget)
        return cls(plan) if plan is not None and limited else None

    def in_batches(self, size: int) -> int:
        """How many batches are as large as so many bytes."""
        return -(-size // max(1, self._batch_bytes))

    def would_not_do(self, in_use: int) -> bool:
        """Whether the coming step would be refused something, with so much in use before it."""
        if not self.has_run:
            return False  # as it was planned: what it sets apart is not there yet
        began = perf_counter()
        if in_use <= self._trusted or (
            self._looks >= FIRST_STEPS and in_use in self._usual and began < self._again_at
        ):
            return False
        self._looks += 1
        self._usual.add(in_use)
        goes = self._goes(profile.chunks() or (), crowded=in_use > self._most)
        self._again_at = perf_counter() + (perf_counter() - began) / SHARE
        if goes:
            self._most = max(self._most, in_use)
        return not goes

    def _goes(self, chunks: Sequence[Chunk], crowded: bool) -> bool:
        """Beside the worst pipeline that it goes beside at first: some plans are for those whose batches come early. If
        no more is in use than before, the data may be at its end, and batches that come early are enough."""
        pieces = self._pieces(chunks)
        if not crowded and any(_does_as_well(pieces, known) for known in self._known):
            return True
        plan = self._plan
        steps = self._steps = self._steps or Steps(plan.program, plan.timeline.batch)
        ahead = batches_ahead(plan.program, plan.timeline.batch, plan.budget)
        for number, (fewer, early) in list(enumerate(PIPELINES))[self._beside :]:
            if steps.goes_on_beside_a_pipeline(chunks, ahead - fewer, early):
                self._beside = self._beside if self._known else number
                self._known = [*self._known[1 - MOST_KNOWN :], pieces]
                return True
            if crowded and self._known:
                return False
        return False

    def _pieces(self, chunks: Sequence[Chunk]) -> tuple[int, ...]:
        least = SMALL_PIECE * self._plan.budget
        free = (chunk.bytes for chunk in chunks if not chunk.in_use)
        return tuple(sorted((size for size in free if size >= least), reverse=True))

    def trust_up_to(self, in_use: int) -> None:
        """Look no more unless so much is in use."""
        self._trusted = in_use


def _does_as_well(pieces: tuple[int, ...], known: tuple[int, ...]) -> bool:
    """Whether there is a free piece for each that was free then, and as large."""
    return len(pieces) >= len(known) and all(now >= then for now, then in zip(pieces, known, strict=False))
