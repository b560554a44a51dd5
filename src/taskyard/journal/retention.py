"""How far back the journal is kept for its readers: those segments that no replay needs any more.

Pure arithmetic over what is known of segments and readers. A reader with a live lease keeps the
segment of its next record and all behind it, within the operator's limits of bytes and age.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from mypy_extensions import i64, mypyc_attr

from taskyard.engine.model.job import FOREVER
from taskyard.engine.model.state import NamedReader


@mypyc_attr(acyclic=True)
class RetentionLimits:
    """What the operator gives to readers at most."""

    __slots__ = ("age", "size")

    def __init__(self, size: i64 = 4 * 1_073_741_824, age: i64 = 72 * 3_600_000_000) -> None:
        self.size = size  # bytes before the replay start; 0: nothing is kept for readers
        self.age = age  # since the last record of a segment, in microseconds


@mypyc_attr(acyclic=True)
class RetainedSegments:
    """The segments up to the one that a replay begins with, which is the last."""

    __slots__ = ("bases", "created", "first_seqs")

    def __init__(self, bases: list[int], first_seqs: list[int], created: list[int]) -> None:
        self.bases = bases
        self.first_seqs = first_seqs
        self.created = created  # each one ends when the next was made


@mypyc_attr(acyclic=True)
class RetentionPlan:
    """Where the kept segments begin, and when to plan again."""

    __slots__ = ("first_kept", "recheck_at")

    def __init__(self, first_kept: i64, recheck_at: i64) -> None:
        self.first_kept = first_kept
        # FOREVER: only when a reader moves, or the replay start does
        self.recheck_at = recheck_at


def plan_retention(
    readers: Iterable[NamedReader], spans: RetainedSegments, limits: RetentionLimits, now: i64
) -> RetentionPlan:
    """Return the base of the first segment that is kept; that of the replay if there is none."""
    last: i64 = len(spans.bases) - 1
    live = [reader for reader in readers if reader.lease_until > now]
    wanting = [reader for reader in live if reader.next_seq < spans.first_seqs[last]]
    if not last or not wanting:
        return RetentionPlan(spans.bases[last], FOREVER)
    lowest = min([reader.next_seq for reader in wanting])
    first: i64 = max(bisect_right(spans.first_seqs, lowest) - 1, 0)
    kept = max(first, _first_allowed(spans, limits, now))
    if kept == last:
        return RetentionPlan(spans.bases[last], FOREVER)
    again = min([reader.lease_until for reader in wanting])
    again = min(again, spans.created[kept + 1] + limits.age)
    return RetentionPlan(spans.bases[kept], again)


def _first_allowed(spans: RetainedSegments, limits: RetentionLimits, now: i64) -> i64:
    """The first segment that the limits allow to be kept."""
    last: i64 = len(spans.bases) - 1
    index = last
    while index:
        if spans.bases[last] - spans.bases[index - 1] > limits.size:
            break
        if spans.created[index] + limits.age <= now:
            break
        index -= 1
    return index
