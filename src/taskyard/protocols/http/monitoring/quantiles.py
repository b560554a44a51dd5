"""How long most things took, from the counts of a histogram."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from taskyard.engine.structures.statistics import Histogram

SHARES: Final = (0.5, 0.95, 0.99)


def quantiles(
    shape: Histogram,
    before: Sequence[int] | None,
    now: Sequence[int],
    shares: Sequence[float] = SHARES,
) -> list[float] | None:
    """In seconds, of what was counted between two samples; None: nothing was.

    Within a bucket all values count as spread evenly, which is how Prometheus sees it too. What is
    beyond the last bound counts as that bound.
    """
    counts = list(now) if before is None else [a - b for a, b in zip(now, before, strict=True)]
    total = sum(counts)
    if total <= 0:
        return None
    return [_value_at_rank(shape, counts, share * total) for share in shares]


def _value_at_rank(shape: Histogram, counts: list[int], rank: float) -> float:
    low = 0
    high = 0
    last = len(counts) - 1
    for at, count in enumerate(counts):
        high = low if at == last else 1 << int(shape.first + at * shape.step)
        if rank <= count:
            part = rank / count if count else 1.0
            return (low + (high - low) * part) / 1_000_000
        rank -= count
        low = high
    return low / 1_000_000
