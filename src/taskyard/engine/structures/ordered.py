"""Collections in order: jobs by key, ready jobs by priority, and a plain queue.

OrderedJobs is the structure behind every state of every queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from mypy_extensions import i64, mypyc_attr
from sortedcontainers import SortedList

from taskyard.engine.model.job import MAX_PRIORITY, Job

T = TypeVar("T")

CHUNK_JOBS: Final = 512
_HALF: Final = CHUNK_JOBS // 2

# Jobs in order


@mypyc_attr(acyclic=True)
class OrderedJobs:
    """Holds jobs by (order key, id) in chunks of a few hundred.

    Taking from either end, appending, removing, and searching by key or by index are O(log n) or a
    short move of memory. A plain list would move megabytes, and a linked list could not resume a
    scan at a job that has left meanwhile.

    Most jobs leave in order of arrival. So the chunk that they leave from is reversed, once, and
    kept before the others as `front`: to take its last costs nothing, while to take the first of a
    list moves all that is behind it.

    Most queues have few jobs in each state, and there may be very many queues. So a single job is
    kept without any list: with those, it would be in five pieces of memory.
    """

    __slots__ = ("chunks", "front", "priority", "single", "size")

    def __init__(self, priority: i64 = 0) -> None:
        self.priority = priority  # of ready jobs; others do not use it
        self.single: Job | None = None  # the one job; then there is nothing in the lists
        self.front: list[Job] = []  # before all chunks, its first job last; may be empty
        self.chunks: list[list[Job]] = []
        self.size: i64 = 0

    def first(self) -> Job:
        only = self.single
        if only is not None:
            return only
        front = self.front
        return front[-1] if front else self.chunks[0][0]

    def last(self) -> Job:
        only = self.single
        if only is not None:
            return only
        chunks = self.chunks
        return chunks[-1][-1] if chunks else self.front[0]

    def insert(self, job: Job) -> None:
        """Put `job` where its position says; the ends are the quick cases."""
        if not self.size:
            self.single = job
            self.size = 1
            return
        if self.single is not None:
            self._move_single_to_chunks()
        chunks = self.chunks
        self.size += 1
        if chunks:
            tail = chunks[-1]
            if _is_before(tail[-1], job.order_key, job.id):
                if len(tail) < CHUNK_JOBS:
                    tail.append(job)
                else:
                    chunks.append([job])
                return
        front = self.front
        if front and not _is_before(front[0], job.order_key, job.id):
            self._insert_in_front(job)
        elif not chunks:
            chunks.append([job])
        else:
            self._insert_in_chunk(job)

    def _move_single_to_chunks(self) -> None:
        """Move the single job into the lists, for operations that use them."""
        only = self.single
        if only is not None:
            self.single = None
            self.chunks.append([only])

    def _insert_in_front(self, job: Job) -> None:
        front = self.front
        if _is_before(front[-1], job.order_key, job.id):
            front.insert(_count_from(front, job.order_key, job.id), job)
        else:
            front.append(job)
        if len(front) > CHUNK_JOBS:
            later = front[:_HALF]
            later.reverse()
            self.chunks.insert(0, later)
            del front[:_HALF]

    def _insert_in_chunk(self, job: Job) -> None:
        chunks = self.chunks
        at = self._chunk_of(job.order_key, job.id)
        chunk = chunks[at]
        chunk.insert(_find(chunk, job.order_key, job.id), job)
        if len(chunk) > CHUNK_JOBS:
            chunks.insert(at + 1, chunk[_HALF:])
            del chunk[_HALF:]

    def remove(self, job: Job) -> None:
        if self.single is job:
            self.single = None
            self.size = 0
            return
        self._move_single_to_chunks()
        front = self.front
        if not front and self.chunks[0][0] is job:
            front = self.chunks.pop(0)
            front.reverse()
            self.front = front
        if front and front[-1] is job:  # in order of arrival, as most jobs leave
            front.pop()
        elif front and not _is_before(front[0], job.order_key, job.id):
            index = _count_from(front, job.order_key, job.id) - 1
            if front[index] is not job:
                raise KeyError(job.id)
            front.pop(index)
        else:
            self._remove_from_chunk(job)
        self.size -= 1

    def _remove_from_chunk(self, job: Job) -> None:
        chunks = self.chunks
        at = self._chunk_of(job.order_key, job.id)
        chunk = chunks[at]
        index = _find(chunk, job.order_key, job.id)
        if chunk[index] is not job:
            raise KeyError(job.id)
        chunk.pop(index)
        if not chunk:
            chunks.pop(at)

    def jobs_after(self, position: i64, id: i64, limit: i64) -> list[Job]:
        """Return up to `limit` jobs behind (order key, id), whether or not that job is here."""
        self._move_single_to_chunks()
        front = self.front
        end = _count_from(front, position, id + 1)
        found = _reversed_slice(front, end, limit)
        if not self.chunks:
            return found
        at = self._chunk_of(position, id + 1)
        index = _find(self.chunks[at], position, id + 1)
        return self._collect(found, at, index, limit)

    def slice(self, start: i64, limit: i64) -> list[Job]:
        """Up to `limit` jobs from the `start`-th on, walking chunks from the nearer end."""
        self._move_single_to_chunks()
        chunks = self.chunks
        if start >= self.size or limit <= 0:
            return []
        before: i64 = len(self.front)
        if start < before:
            found = _reversed_slice(self.front, before - start, limit)
            return self._collect(found, 0, 0, limit)
        at: i64 = 0
        if start <= self.size // 2:
            start -= before
            while start >= len(chunks[at]):
                start -= len(chunks[at])
                at += 1
        else:
            at = len(chunks) - 1
            before = self.size - len(chunks[at])
            while before > start:
                at -= 1
                before -= len(chunks[at])
            start -= before
        return self._collect([], at, start, limit)

    def _collect(self, found: list[Job], at: i64, index: i64, limit: i64) -> list[Job]:
        """Add jobs to `found`, from a place in a chunk on, until there are `limit` of them."""
        chunks = self.chunks
        limit -= len(found)
        while limit > 0 and at < len(chunks):
            chunk = chunks[at]
            part = chunk[index : index + limit]
            found.extend(part)
            limit -= len(part)
            index = 0
            at += 1
        return found

    def _chunk_of(self, position: i64, id: i64) -> i64:
        """The first chunk that ends at or after the key, else the last one."""
        chunks = self.chunks
        low: i64 = 0
        high: i64 = len(chunks) - 1
        while low < high:
            middle = (low + high) // 2
            if _is_before(chunks[middle][-1], position, id):
                low = middle + 1
            else:
                high = middle
        return low


def _is_before(job: Job, position: i64, id: i64) -> bool:
    return job.order_key < position or (job.order_key == position and job.id < id)


def _find(chunk: list[Job], position: i64, id: i64) -> i64:
    """Index of the first job at or after the key."""
    low: i64 = 0
    high: i64 = len(chunk)
    while low < high:
        middle = (low + high) // 2
        if _is_before(chunk[middle], position, id):
            low = middle + 1
        else:
            high = middle
    return low


def _count_from(front: list[Job], position: i64, id: i64) -> i64:
    """How many jobs of a front are at or after the key; they are its first."""
    low: i64 = 0
    high: i64 = len(front)
    while low < high:
        middle = (low + high) // 2
        if _is_before(front[middle], position, id):
            high = middle
        else:
            low = middle + 1
    return low


def _reversed_slice(front: list[Job], end: i64, limit: i64) -> list[Job]:
    """Of the first `end` of a front, up to `limit` in order."""
    found = front[max(end - limit, i64(0)) : end]
    found.reverse()
    return found


# Ready jobs


@mypyc_attr(acyclic=True)
class PriorityQueue:
    """The ready jobs of one queue, in delivery order.

    One OrderedJobs per priority that has jobs. Most queues have one priority, so the sorted index
    over the priorities exists only while there are two or more.
    """

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


# First in, first out


class Fifo(Generic[T]):
    """First in, first out: two lists, of which one is added to and the other, turned round, is
    taken from.

    Compiled, that is a few instructions where a deque costs hundreds.
    """

    __slots__ = ("_newer", "_older")

    def __init__(self) -> None:
        self._newer: list[T] = []
        self._older: list[T] = []  # the oldest last

    def add(self, item: T) -> None:
        self._newer.append(item)

    def pop_oldest(self) -> T:
        if not self._older:
            self._older = self._newer
            self._older.reverse()
            self._newer = []
        return self._older.pop()

    def is_empty(self) -> bool:
        return not self._newer and not self._older

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)

    def __iter__(self) -> Iterator[T]:
        """From the oldest on."""
        yield from reversed(self._older)
        yield from self._newer

    def __reversed__(self) -> Iterator[T]:
        yield from reversed(self._newer)
        yield from self._older
