"""The jobs of one queue that can be handed out, in delivery order.

One lane per priority that has jobs. Most queues have one priority, so the sorted index over the
priorities is only there while there are two or more.
"""

from __future__ import annotations

from mypy_extensions import i64, mypyc_attr
from sortedcontainers import SortedList

from taskyard.engine.model.job import MAX_PRIORITY, Job
from taskyard.engine.structures.lane import Lane


@mypyc_attr(acyclic=True)
class Ready:
    __slots__ = ("lanes", "order", "size", "top")

    def __init__(self) -> None:
        self.size: i64 = 0
        self.top: Lane = Lane()  # of the highest priority; empty only if there is no job at all
        self.lanes: dict[int, Lane] = {0: self.top}
        self.order: SortedList[int] | None = None  # ~priority, so that the best comes first

    def first(self) -> Job | None:
        return self.top.first() if self.size else None

    def last(self) -> Job | None:
        if not self.size:
            return None
        order = self.order
        return self.top.last() if order is None else self.lanes[~order[-1]].last()

    def pools(self) -> int:
        """How many priorities have jobs."""
        return len(self.lanes) if self.size else 0

    def add(self, job: Job) -> None:
        priority = job.priority
        lane = self.top
        if lane.priority != priority:
            lane = self._lane(priority)
        lane.insert(job)
        self.size += 1

    def remove(self, job: Job) -> None:
        priority = job.priority
        lane = self.top if self.top.priority == priority else self.lanes[priority]
        lane.remove(job)
        self.size -= 1
        if not lane.size and self.order is not None:
            self._drop(priority)

    def after(self, priority: i64, position: i64, id: i64, limit: i64) -> list[Job]:
        """Up to `limit` jobs behind the place (priority, position, id) in delivery order."""
        order = self.order
        if order is None:
            lane = self.top
            if lane.priority > priority:
                return []
            if lane.priority < priority:
                return lane.slice(0, limit)
            return lane.after(position, id, limit)
        found: list[Job] = []
        for inverted in order.irange(~priority):
            lane = self.lanes[~inverted]
            room = limit - len(found)
            if lane.priority == priority:
                found.extend(lane.after(position, id, room))
            else:
                found.extend(lane.slice(0, room))
            if len(found) >= limit:
                break
        return found

    def slice(self, start: i64, limit: i64) -> list[Job]:
        """Up to `limit` jobs from the `start`-th in delivery order on."""
        order = self.order
        if order is None:
            return self.top.slice(start, limit)
        found: list[Job] = []
        for inverted in order:
            lane = self.lanes[~inverted]
            if start >= lane.size:
                start -= lane.size
                continue
            found.extend(lane.slice(start, limit - len(found)))
            start = 0
            if len(found) >= limit:
                break
        return found

    def before_start(self) -> i64:
        """A priority that no job comes before: where a walk with `after` begins."""
        return MAX_PRIORITY

    def _lane(self, priority: i64) -> Lane:
        lanes = self.lanes
        found = lanes.get(priority)
        if found is not None:
            return found
        if not self.size:  # the one lane is empty: it changes its priority
            lane = self.top
            del lanes[lane.priority]
            lane.priority = priority
            lanes[priority] = lane
            return lane
        lane = Lane(priority)
        lanes[priority] = lane
        order = self.order
        if order is None:
            order = SortedList([~self.top.priority])
            self.order = order
        order.add(~priority)
        if priority > self.top.priority:
            self.top = lane
        return lane

    def _drop(self, priority: i64) -> None:
        """Forget an empty lane; only called while there are two or more."""
        order = self.order
        assert order is not None
        order.remove(~priority)
        del self.lanes[priority]
        self.top = self.lanes[~order[0]]
        if len(order) == 1:
            self.order = None
