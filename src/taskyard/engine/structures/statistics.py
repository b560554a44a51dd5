"""How long things take, and sums over queues, for metrics, plots and live figures.

Measured while the server runs; nothing here is persistent, and no decision depends on it. Durations
are in microseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

if TYPE_CHECKING:
    from taskyard.engine.model.queue import Queue


# Of the times of queues: from 256 microseconds in steps of four to some 4.8 hours.
_QUEUE_FIRST: Final = 8
_QUEUE_STEP: Final = 2
_QUEUE_BOUNDS: Final = 14

NAMED_QUEUES: Final = 1000
_COUNTERS: Final = 8  # that a queue has

# Times


class EngineStatistics:
    """The times of all queues, and the pushes that were refused.

    The first queues have times of their own, up to a limit; the others share theirs. A queue that
    is deleted frees its place for the next new one.
    """

    def __init__(self, limit: i64 = NAMED_QUEUES) -> None:
        self.limit = limit
        self.named_count: i64 = 0
        self.shared_times = QueueTimes()
        self.refused_pushes: i64 = 0  # pushes to queues that were full
        self.overflowed_pushes: i64 = 0  # those that became dead letters instead
        self.schedules = ScheduleStatistics()
        self.refused_without_space: i64 = 0  # pushes and the like that the disk had no space for
        self.deleted_since_start: list[
            int
        ] = []  # counters of those that were deleted and had none of their own
        # All that deleted queues have counted and measured, so that sums never go back.
        self.deleted_counters: list[int] = [0] * _COUNTERS
        self.deleted_times = QueueTimes()

    def times_of(self, queue: Queue) -> QueueTimes:
        times = queue.times
        if times is None:
            times = self.shared_times
            if self.named_count < self.limit:
                times = QueueTimes()
                self.named_count += 1
            queue.times = times
        return times

    def forget_queue(self, queue: Queue) -> None:
        """The queue is deleted. What it has counted stays in the sum that it was a part of."""
        for at, count in enumerate(queue.counters()):
            self.deleted_counters[at] += count
        times = queue.times
        if times is not None and times is not self.shared_times:
            self.deleted_times.add(times)
            self.named_count -= 1
            return
        counts = queue.counts_since_start()
        gone = self.deleted_since_start
        self.deleted_since_start = (
            [gone[at] + counts[at] for at in range(len(counts))] if gone else counts
        )


@mypyc_attr(acyclic=True)
class QueueTimes:
    """How long the jobs of a queue have waited, and how long it took to do them."""

    __slots__ = ("runs", "waits")

    def __init__(self) -> None:
        self.waits = Histogram(_QUEUE_FIRST, _QUEUE_STEP, _QUEUE_BOUNDS)  # ready until leased
        self.runs = Histogram(_QUEUE_FIRST, _QUEUE_STEP, _QUEUE_BOUNDS)  # leased until finished

    def add(self, other: QueueTimes) -> None:
        self.waits.add_all(other.waits)
        self.runs.add_all(other.runs)


@mypyc_attr(acyclic=True)
class ScheduleStatistics:
    """The results of the ticks of all schedules."""

    __slots__ = ("lateness", "missed", "refused", "runs", "skipped")

    def __init__(self) -> None:
        self.runs: i64 = 0
        self.skipped: i64 = 0  # while the last job had not ended
        self.missed: i64 = 0  # no run was for them
        self.refused: i64 = 0  # their push was refused at first
        self.lateness = Histogram(_QUEUE_FIRST, _QUEUE_STEP, _QUEUE_BOUNDS)  # from tick to push


@mypyc_attr(acyclic=True)
class Histogram:
    """Counts by powers of two, with a few instructions for each value.

    Bound number `i` is 2^(first + i * step) and belongs to its bucket. The last bucket is for what
    is beyond all bounds. Values for the same bucket in a row are counted apart until another bucket
    has its turn or the counts are read: a number in a list is an object, which has to be made anew
    each time.
    """

    __slots__ = (
        "_buckets",
        "_last",
        "_lowest",
        "_pending_bucket",
        "_pending_count",
        "first",
        "step",
        "total",
    )

    def __init__(self, first: i64, step: i64, bounds: i64) -> None:
        self.first = first
        self.step = step
        self._buckets: list[int] = [0] * (int(bounds) + 1)
        self._pending_bucket: i64 = 0  # the bucket of the last one
        self._pending_count: i64 = 0  # how many more since it was counted
        self.total: i64 = 0
        self._lowest: i64 = 1 << first
        self._last = bounds

    @property
    def buckets(self) -> list[int]:
        self._flush_pending()
        return self._buckets

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def add(self, duration: i64) -> None:
        if duration > 0:
            self.total += duration
        index: i64 = 0
        if duration > self._lowest:  # as few are while workers keep up
            index = (_bits(duration - 1) - self.first + self.step - 1) // self.step
            if index > self._last:
                index = self._last
        if index != self._pending_bucket:
            self._flush_pending()
            self._pending_bucket = index
        self._pending_count += 1

    def _flush_pending(self) -> None:
        self._buckets[self._pending_bucket] += self._pending_count
        self._pending_count = 0

    def add_all(self, other: Histogram) -> None:
        """What another one of the same bounds has counted."""
        if not other.total and not other.buckets[0]:
            return
        self.total += other.total
        for at, count in enumerate(other.buckets):
            if count:
                self.buckets[at] += count

    def bounds(self) -> list[int]:
        """In microseconds, without that of the last bucket, which has none."""
        return [1 << (self.first + index * self.step) for index in range(len(self.buckets) - 1)]


def _bits(number: i64) -> i64:
    """How many bits a positive number has. int.bit_length would make an object of it first."""
    bits: i64 = 1
    if number >= 1 << 32:
        number >>= 32
        bits += 32
    if number >= 1 << 16:
        number >>= 16
        bits += 16
    if number >= 1 << 8:
        number >>= 8
        bits += 8
    if number >= 1 << 4:
        number >>= 4
        bits += 4
    if number >= 1 << 2:
        number >>= 2
        bits += 2
    return bits + (number >> 1)


# Totals


@mypyc_attr(acyclic=True)
class QueueTotals:
    """Sums over queues, added up a few at a time.

    Totals that were started with the list of all queues and have been given each of them are
    complete: their counters never fall, because those of deleted queues are in them as well.
    """

    __slots__ = (
        "_statistics",
        "blocked",
        "dead",
        "delayed",
        "done",
        "expired",
        "failed",
        "finished",
        "leased",
        "leases",
        "limited",
        "named_queues",
        "pushed",
        "queues",
        "ready",
        "released",
        "removed",
        "retried",
        "times",
    )

    def __init__(self, measures: EngineStatistics) -> None:
        self._statistics = measures
        self.queues: i64 = 0
        # Jobs by state.
        self.ready: i64 = 0
        self.delayed: i64 = 0
        self.leased: i64 = 0
        self.blocked: i64 = 0
        self.done: i64 = 0
        self.dead: i64 = 0
        self.limited: i64 = 0
        # Counters since the queues exist; those of queues deleted since the start are included.
        dropped = measures.deleted_counters
        self.pushed: i64 = dropped[0]
        self.leases: i64 = dropped[1]
        self.finished: i64 = dropped[2]
        self.failed: i64 = dropped[3]
        self.retried: i64 = dropped[4]
        self.released: i64 = dropped[5]
        self.expired: i64 = dropped[6]
        self.removed: i64 = dropped[7]
        self.times = QueueTimes()
        self.times.add(measures.shared_times)
        self.times.add(measures.deleted_times)
        self.named_queues: list[Queue] = []  # those with times of their own

    def add(self, queues: list[Queue], start: i64, end: i64) -> None:
        """The queues from one index to before another."""
        measures = self._statistics
        at = start
        while at < end:
            queue = queues[at]
            at += 1
            self.queues += 1
            self.ready += queue.ready.size
            self.delayed += queue.delayed.size
            self.leased += queue.leased.size
            self.blocked += queue.blocked.size
            self.done += queue.done.size
            self.dead += queue.dead.size
            self.limited += queue.limited.size
            self.pushed += queue.pushed
            self.leases += queue.leases
            self.finished += queue.finished
            self.failed += queue.failed
            self.retried += queue.retried
            self.released += queue.released
            self.expired += queue.expired
            self.removed += queue.removed
            times = measures.times_of(queue)
            if times is not measures.shared_times:
                self.times.add(times)
                self.named_queues.append(queue)
