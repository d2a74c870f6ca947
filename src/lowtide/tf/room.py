"""Whether a planned step still goes through the allocator as it is now, on a device that has the budget and no more.

Between steps something may have come to lie there (a cache that fills, tensors that the script keeps) or may have moved
(weights that the script sets): less is free, or it is free in other pieces. What would happen is replayed on the
allocator's map before it does.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from lowtide.plan import Plan
from lowtide.plan.plan import BATCHES_AHEAD
from lowtide.plan.room import PIPELINES, is_all_there_is
from lowtide.program import Chunk
from lowtide.simulate import Steps
from lowtide.tf import profile

FIRST_STEPS = 8
"""The map is looked at before each of these; then when more or less is in use than ever before, and now and then."""
SHARE = 0.01
"""Of the time: what looking now and then may take."""
A_LITTLE = 0.0003
"""Of the budget: so much more in use, or so much less in the largest piece, is replayed; or half a batch."""


class Room:
    """What the device has for a plan's step, as far as that was looked at."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._batch_bytes = sum(plan.program.argument_bytes(plan.timeline.batch))
        self._notable = max(self._batch_bytes // 2, int(A_LITTLE * plan.budget))
        self._most = plan.timeline.chunk_resident  # in use before a step: with no more, it goes through
        self._least = plan.budget  # bytes of the largest free piece: with no less, it does
        self._usual: set[int] = set()
        self._looks, self._again_at = 0, 0.0
        self.has_run = False  # the plan's step, since it was planned
        self._steps: Steps | None = None
        self._beside: tuple[int, float] | None = None

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
        if self._looks >= FIRST_STEPS and in_use in self._usual and began < self._again_at:
            return False
        self._looks += 1
        self._usual.add(in_use)
        chunks = profile.chunks() or ()
        largest = max((chunk.bytes for chunk in chunks if not chunk.in_use), default=0)
        self._again_at = perf_counter() + (perf_counter() - began) / SHARE
        if in_use <= self._most and largest >= self._least:
            return False
        self._most = max(self._most, in_use + self._notable)
        self._least = min(self._least, largest - self._notable)
        return not self._goes(chunks)

    def _goes(self, chunks: Sequence[Chunk]) -> bool:
        """Beside the worst pipeline that it goes beside at first: some plans are for those whose batches come early."""
        steps = self._steps = self._steps or Steps(self._plan.program, self._plan.timeline.batch)
        for fewer, early in (self._beside,) if self._beside else PIPELINES:
            if steps.goes_on_beside_a_pipeline(chunks, BATCHES_AHEAD - fewer, early):
                self._beside = fewer, early
                return True
        return False

    def trust_up_to(self, in_use: int) -> None:
        """Look no more unless so much is in use."""
        self._most, self._least = in_use, 0
