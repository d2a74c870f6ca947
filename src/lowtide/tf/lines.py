"""Sizes at a few batches become functions of the batch: a line, or a line divided and rounded down, as B // 2.

The script's own batch is among the probes, so that what holds for small batches only (the first 8 rows of a batch)
is not taken for a law.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

from lowtide.program import Dim, Shape

Sizes = tuple[int, ...]
_DIVISORS = (2, 3, 4)
"""More would fit anything: three probes are few."""


def probe_batches(own: int, asked: Sequence[int] = ()) -> Sizes:
    """A small batch, the script's own and a larger one: two give a line, the third checks it.

    The larger one is the script's own doubled: a step that splits its batch in two goes through it. A batch that is
    asked about has to be right too.
    """
    larger = 2 * own
    while larger < 32:
        larger *= 2
    return tuple(sorted({*((2, own, larger) if own > 3 else (2, 3, 7)), *asked}))


def fit_shape(dims: Sequence[tuple[int | None, ...] | None], batches: Sequence[int]) -> Shape | None:
    """Dimensions as functions of the batch through every probe; None when one is unknown or has no such function."""
    return _each(dims, batches, _law)


def fit_nearby(dims: Sequence[tuple[int | None, ...] | None], batches: Sequence[int]) -> Shape | None:
    """Dimensions that are right at the two largest probes; None when one is unknown."""
    return _each(dims, batches, _through_the_last_two)


def _each(
    dims: Sequence[tuple[int | None, ...] | None], batches: Sequence[int], fit: Callable[[Sizes, Sizes], Dim | None]
) -> Shape | None:
    rows = [row for row in dims if row is not None and None not in row]
    if len(rows) < len(dims) or len({len(row) for row in rows}) != 1:
        return None
    fitted = []
    for sizes in zip(*rows, strict=True):
        dim = fit(tuple(int(size or 0) for size in sizes), tuple(batches))
        if dim is None:
            return None
        fitted.append(dim)
    return tuple(fitted)


@lru_cache(maxsize=4096)
def _law(sizes: Sizes, batches: Sizes) -> Dim | None:
    if len(set(sizes)) == 1:
        return Dim(sizes[0])
    return next((dim for dim in _candidates(sizes, batches) if _fits(dim, sizes, batches)), None)


def _candidates(sizes: Sizes, batches: Sizes) -> Iterator[Dim]:
    slope = (sizes[1] - sizes[0]) // (batches[1] - batches[0])
    yield Dim(sizes[0] - slope * batches[0], slope)
    for divisor in _DIVISORS:
        steep = round(divisor * (sizes[-1] - sizes[0]) / (batches[-1] - batches[0]))
        most = min(divisor * size + divisor - 1 - steep * batch for size, batch in zip(sizes, batches, strict=True))
        if steep > 0:
            yield Dim(most, steep, divisor)


def _fits(dim: Dim, sizes: Sizes, batches: Sizes) -> bool:
    return all(dim.at(batch) == size for size, batch in zip(sizes, batches, strict=True))


def _through_the_last_two(sizes: Sizes, batches: Sizes) -> Dim:
    (low, first), (high, last) = sorted(zip(batches, sizes, strict=True))[-2:]
    run = high - low
    return Dim(run * last - (last - first) * high, last - first, run)
