"""The ready jobs of one queue, in delivery order.

One OrderedJobs per priority that has jobs. Most queues have one priority, so the sorted index over
the priorities exists only while there are two or more.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr
from sortedcontainers import SortedList

from taskyard.engine.model.job import MAX_PRIORITY, Job
from taskyard.engine.structures.lane import OrderedJobs


@mypyc_attr(acyclic=True)
class PriorityQueue:
    __slots__ = ("by_priority", "highest", "size", "sorted_priorities")

    def __init__(self) -> None:
        self.size: i64 = 0
        # of the highest priority; empty only if there is no job at all
        self.highest: OrderedJobs = OrderedJobs()
        self.by_priority: dict[int, OrderedJobs] = {0: self.highest}
        # ~priority, so that the highest is first
        self.sorted_priorities: SortedList[int] | None = None

    def first(self) -> Job | None:
        return self.highest.first() if self.size else None

    def last(self) -> Job | None:
        if not self.size:
            return None
        order = self.sorted_priorities
        return self.highest.last() if order is None else self.by_priority[~order[-1]].last()

    def priority_count(self) -> int:
        """How many priorities have jobs."""
        return len(self.by_priority) if self.size else 0

    def add(self, job: Job) -> None:
        priority = job.priority
        lane = self.highest
        if lane.priority != priority:
            lane = self._ensure_priority(priority)
        lane.insert(job)
        self.size += 1

    def remove(self, job: Job) -> None:
        priority = job.priority
        lane = self.highest if self.highest.priority == priority else self.by_priority[priority]
        lane.remove(job)
        self.size -= 1
        if not lane.size and self.sorted_priorities is not None:
            self._remove_priority(priority)

    def jobs_after(self, priority: i64, position: i64, id: i64, limit: i64) -> list[Job]:
        """Up to `limit` jobs behind the place (priority, position, id) in delivery order."""
        order = self.sorted_priorities
        if order is None:
            lane = self.highest
            if lane.priority > priority:
                return []
            if lane.priority < priority:
                return lane.slice(0, limit)
            return lane.jobs_after(position, id, limit)
        found: list[Job] = []
        for inverted in order.irange(~priority):
            lane = self.by_priority[~inverted]
            room = limit - len(found)
            if lane.priority == priority:
                found.extend(lane.jobs_after(position, id, room))
            else:
                found.extend(lane.slice(0, room))
            if len(found) >= limit:
                break
        return found

    def slice(self, start: i64, limit: i64) -> list[Job]:
        """Up to `limit` jobs from the `start`-th in delivery order on."""
        order = self.sorted_priorities
        if order is None:
            return self.highest.slice(start, limit)
        found: list[Job] = []
        for inverted in order:
            lane = self.by_priority[~inverted]
            if start >= lane.size:
                start -= lane.size
                continue
            found.extend(lane.slice(start, limit - len(found)))
            start = 0
            if len(found) >= limit:
                break
        return found

    def walk_start_priority(self) -> i64:
        """Return the priority at which a scan with `after` begins."""
        return MAX_PRIORITY

    def _ensure_priority(self, priority: i64) -> OrderedJobs:
        lanes = self.by_priority
        found = lanes.get(priority)
        if found is not None:
            return found
        if not self.size:  # the only one is empty: it changes its priority
            lane = self.highest
            del lanes[lane.priority]
            lane.priority = priority
            lanes[priority] = lane
            return lane
        lane = OrderedJobs(priority)
        lanes[priority] = lane
        order = self.sorted_priorities
        if order is None:
            order = SortedList([~self.highest.priority])
            self.sorted_priorities = order
        order.add(~priority)
        if priority > self.highest.priority:
            self.highest = lane
        return lane

    def _remove_priority(self, priority: i64) -> None:
        """Drop an empty priority; only called while there are two or more."""
        order = self.sorted_priorities
        assert order is not None
        order.remove(~priority)
        del self.by_priority[priority]
        self.highest = self.by_priority[~order[0]]
        if len(order) == 1:
            self.sorted_priorities = None
