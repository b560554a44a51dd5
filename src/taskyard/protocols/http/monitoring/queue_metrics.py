"""The metrics of queues: so many have their own names, the others are summed under queue=""."""

from __future__ import annotations

from typing import Final

from taskyard.engine.model.queue import Queue
from taskyard.engine.operations.facade import Engine
from taskyard.engine.structures.measures import QueueTimes
from taskyard.protocols.http.monitoring.exposition import COUNTER, GAUGE, HISTOGRAM, Family, label

STATES: Final = ("ready", "delayed", "leased", "blocked", "succeeded", "dead", "limited")
_STATE_LABELS: Final = tuple(f',state="{state}"' for state in STATES)

# In the order of Queue.counters.
_COUNTERS: Final = (
    ("pushed", "Jobs pushed."),
    ("leased", "Leases given."),
    ("finished", "Jobs that succeeded."),
    ("failed", "Jobs that failed for good."),
    ("retried", "Failed attempts that are tried again."),
    ("released", "Leases that ended without a verdict: expired, lost, returned."),
    ("expired", "Jobs that their ttl ended."),
    ("removed", "Jobs deleted, purged or withdrawn."),
)


class QueueFamilies:
    def __init__(self, engine: Engine) -> None:
        self._measures = engine.statistics
        self._jobs = Family("taskyard_queue_jobs", GAUGE, "Jobs in a queue, by state.")
        self._counters = [
            Family(f"taskyard_queue_{name}_total", COUNTER, f"{doc} Since the server was started.")
            for name, doc in _COUNTERS
        ]
        self._waits = Family(
            "taskyard_queue_wait_seconds", HISTOGRAM, "Time from ready to handed out."
        )
        self._runs = Family(
            "taskyard_queue_run_seconds", HISTOGRAM, "Time from leased to finished with success."
        )
        self._tasks = Family("masenko_tasks_total", GAUGE, "Tasks in a queue, by kind.")
        self._other_jobs = [0] * len(STATES)
        self._other_counts = [0] * len(_COUNTERS)
        self._other_queues = 0

    def add(self, queue: Queue) -> None:
        times = self._measures.times_of(queue)
        jobs = [
            queue.ready.size,
            queue.delayed.size,
            queue.leased.size,
            queue.blocked.size,
            queue.done.size,
            queue.dead.size,
            queue.limited.size,
        ]
        if times is self._measures.shared_times:
            self._other_queues += 1
            _add(self._other_jobs, jobs)
            _add(self._other_counts, queue.counts_since_start())
        else:
            self._show(label("queue", queue.name), jobs, queue.counts_since_start(), times)

    def seal(self) -> None:
        for family in self._all():
            family.seal()

    def families(self) -> list[Family]:
        measures = self._measures
        if measures.deleted_since_start:
            _add(self._other_counts, measures.deleted_since_start)
        if self._other_queues or measures.deleted_since_start:
            self._show('queue=""', self._other_jobs, self._other_counts, measures.shared_times)
        return self._all()

    def _all(self) -> list[Family]:
        return [self._jobs, *self._counters, self._waits, self._runs, self._tasks]

    def _show(self, named: str, jobs: list[int], counts: list[int], times: QueueTimes) -> None:
        for at, state in enumerate(_STATE_LABELS):
            self._jobs.add(jobs[at], named + state)
        for at, family in enumerate(self._counters):
            family.add(counts[at], named)
        if times.waits.count:
            self._waits.add_histogram(times.waits, named)
        if times.runs.count:
            self._runs.add_histogram(times.runs, named)
        ready, delayed, leased, blocked = jobs[:4]
        self._tasks.add(ready + jobs[-1], named + ',kind="ready"')
        self._tasks.add(delayed + blocked, named + ',kind="delayed"')
        self._tasks.add(leased, named + ',kind="toack"')


def _add(sums: list[int], more: list[int]) -> None:
    for at, number in enumerate(more):
        sums[at] += number
