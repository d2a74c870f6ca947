"""How a size goes over a run: its values from step to step, whether it still rises, by how much.

All pure, all from one Recording.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from lowtide.program import Source
from lowtide.record import STEP_KINDS, Recording, Sample, Step
from lowtide.record.views import inside, main_kind, main_steps

STILL = 0.4
"""Growth goes on if the second half of the run has at least this part of what an even growth would give it."""
MOST_JUMPS, RISES = 2, 40
"""Growth is made of many rises, one in so many values at least: a jump or two are none."""
FEWEST = 6
"""Values that a trend takes."""
MOSTLY = 0.8
LOWS = 4
"""A low is looked for in this part of the values."""


def series(recording: Recording, of: str) -> list[int]:
    """`device_bytes` or `rss_bytes` at the end of each of the run's steps; of samples, where it has too few steps.

    Samples count from the first that saw memory on the device, so that imports are left out.
    """
    steps = [size for _, step in main_steps(recording) if (size := getattr(step, of)) is not None]
    if len(steps) >= FEWEST:
        return steps
    samples = _while_it_ran(inside(recording))
    begun = next((n for n, sample in enumerate(samples) if sample.device_bytes), len(samples))
    return [size for sample in samples[begun + 1 :] if (size := getattr(sample, of)) is not None]


def _while_it_ran(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Without those that came when the script had ended: none of its lines was running, and all is let go."""
    last = max((number for number, sample in enumerate(samples) if sample.source), default=len(samples))
    return samples[: last + 1]


def phases(recording: Recording, of: str) -> list[list[int]]:
    """The run's own steps, and every other kind of call that it repeats: an evaluation, eager code after training."""
    main = main_kind(recording)
    found = _by_line([step for _, step in main_steps(recording)], of) or [series(recording, of)]
    for kind in STEP_KINDS:
        steps = [step for step in recording.steps if step.kind == kind]
        values = [size for step in steps if (size := getattr(step, of)) is not None]
        if kind != main and len(values) >= FEWEST:
            found += _by_line(steps, of) or [values]
    return found


def _by_line(steps: Sequence[Step], of: str) -> list[list[int]]:
    """Steps of several lines that take turns, line by line: what one has left when it ends is no measure of another.

    Empty where one line has nearly all of them.
    """
    lines: dict[Source | None, list[int]] = {}
    for step in steps:
        if (size := getattr(step, of)) is not None:
            lines.setdefault(step.source, []).append(size)
    often = [values for values in lines.values() if len(values) >= FEWEST]
    return often if len(often) > 1 and sum(map(len, often)) >= MOSTLY * len(steps) else []


def afterwards(recording: Recording, of: str) -> list[int]:
    """Samples after the last step that the hooks saw: what plain ops did then."""
    last = max((step.stop for step in recording.steps), default=0.0)
    samples = [s for s in inside(recording) if s.time > last]
    return [size for sample in samples if (size := getattr(sample, of)) is not None]


def goes_on(recording: Recording, of: str) -> bool | None:
    """Whether something still grows in the second half of a phase; None when none is long enough to tell."""
    said = [_goes_on(values) for values in phases(recording, of)]
    return True if True in said else False if False in said else None


def _goes_on(values: Sequence[int]) -> bool | None:
    """A cache that fills once, a warm-up, a buffer that finds its size: all are over in the second half."""
    if len(values) < FEWEST:
        return None
    middle = len(values) // 2
    total, late = max(values[-1], values[middle]) - values[1], _rise_of_lows(values[middle:])
    if total <= 0 or late <= 0:
        return False
    rises = sum(b > a for a, b in pairwise(values[middle:]))
    even = (len(values) - middle) / len(values)
    return late >= STILL * even * total and rises >= max(MOST_JUMPS, (len(values) - middle) / RISES)


def _rise_of_lows(values: Sequence[int]) -> int:
    """By how much the lows become higher: what goes up and down, and always as far down, does not grow."""
    width = max(1, len(values) // LOWS)
    lows = [min(values[at : at + width]) for at in range(len(values) - width + 1)]
    return max(lows) - lows[0]


def grows_afterwards(recording: Recording, of: str) -> bool:
    return _goes_on(afterwards(recording, of)) is True


def rise(recording: Recording, of: str) -> int:
    """By how much a series is higher at its highest than after its first values: warm-up is left out."""
    found = phases(recording, of)
    growing = [values for values in found if _goes_on(values)] or found[:1]
    return max((max(values[2:]) - values[2] for values in growing if len(values) >= FEWEST), default=0)


def device_goes_on(recording: Recording) -> bool | None:
    return goes_on(recording, "device_bytes")


def host_goes_on(recording: Recording) -> bool | None:
    return goes_on(recording, "rss_bytes")


def slow_samples(recording: Recording) -> list[Sample]:
    """Samples that know of the heap, tensors and graphs, too."""
    return [s for s in inside(recording) if s.heap_bytes is not None]


def begun_at(recording: Recording) -> float:
    """When the run's steps began; where it has none, when there first was something on the device."""
    steps = main_steps(recording)
    return steps[0][1].start if steps else min((s.time for s in inside(recording) if s.device_bytes), default=0.0)
