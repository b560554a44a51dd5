"""Sums over queues, added up a few at a time, for plots and live figures.

A tally that was started with the list of all queues and has been given each of them is complete:
its counters never fall, because those of deleted queues are in it as well.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr

from taskyard.engine.model.queue import Queue
from taskyard.engine.structures.measures import EngineStatistics, QueueTimes


@mypyc_attr(acyclic=True)
class QueueTotals:
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
