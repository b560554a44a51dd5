"""Everything that happens at some time, in one heap.

Each timer knows its slot in the heap, so cancelling one removes it at once: no leftovers pile up
under leases, which almost always end before their time. Leases of one moment share one timer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mypy_extensions import i64, mypyc_attr

if TYPE_CHECKING:
    from taskyard.engine.model.job import Job

WAKE_TIMER: Final = 0  # the first delayed job of a queue
LEASE_TIMER: Final = 1  # the leases of some jobs
TTL_TIMER: Final = 2  # a job's time to live
DEAD_LETTER_TIMER: Final = 3  # the oldest dead letter of a queue
VALUE_TIMER: Final = 4  # an expiring keyed value
SESSION_TIMER: Final = 5  # a durable session without a client
TOMBSTONE_TIMER: Final = 6  # the oldest remembered uids
CONSUMER_TIMER: Final = 7  # a batch lease
WAITER_TIMER: Final = 8  # a blocked fetch
WATCHER_TIMER: Final = 9  # a client that waits for a result
SCHEDULE_TIMER: Final = 10  # the next tick of a schedule
RATE_TIMER: Final = 11  # a queue whose rate allows the next job
KEY_LIMIT_TIMER: Final = 12  # the same of one key, or nothing is left to remember of it
IDLE_QUEUE_TIMER: Final = 13  # a queue that may have been idle for too long

_MAX_LEASES_PER_TIMER: Final = 1000  # leases of one timer
_COMPACT_RATIO: Final = 4  # times as many jobs as leases that are left: then the others are dropped
_ARITY: Final = 4  # shallower than a binary heap: fewer cache misses at a million timers


@mypyc_attr(acyclic=True)
class Timer:
    __slots__ = ("deadline", "kind", "slot", "target")

    def __init__(self, kind: i64, target: object) -> None:
        self.kind = kind
        self.target = target
        self.deadline: i64 = 0
        self.slot: i64 = -1  # index in the heap, -1: not in it


@mypyc_attr(acyclic=True)
class LeaseTimer(Timer):
    """Of leases that end at the same time since they were given one after the other."""

    __slots__ = ("_jobs", "_next_index", "active_count")

    def __init__(self) -> None:
        super().__init__(LEASE_TIMER, None)
        self.active_count: i64 = 0  # leases that have not ended
        self._jobs: list[Job] = []  # in their order; some may have lost that lease
        self._next_index: i64 = 0  # all before this one have

    def is_full(self) -> bool:
        return len(self._jobs) >= _MAX_LEASES_PER_TIMER

    def add(self, job: Job) -> None:
        self._jobs.append(job)
        self.active_count += 1

    def first_active_job(self) -> Job:
        """Return the first of them whose lease has not ended."""
        while not self._is_active(self._jobs[self._next_index]):
            self._next_index += 1
        return self._jobs[self._next_index]

    def on_lease_ended(self) -> None:
        """One of the leases has ended, or will at another time; its job does not say any more that
        it is this one."""
        self.active_count -= 1
        if not self.active_count:
            self._jobs.clear()
        elif self.active_count * _COMPACT_RATIO < len(
            self._jobs
        ):  # jobs that are done must not be kept for long
            self._jobs = [job for job in self._jobs if self._is_active(job)]
            self._next_index = 0

    def _is_active(self, job: Job) -> bool:
        lease = job.lease
        return lease is not None and lease.timer is self


@mypyc_attr(acyclic=True)
class Timers:
    __slots__ = ("heap",)

    def __init__(self) -> None:
        self.heap: list[Timer] = []

    def first(self) -> Timer | None:
        return self.heap[0] if self.heap else None

    def set(self, timer: Timer, deadline: i64) -> None:
        """Arm `timer`, or move it to another deadline."""
        heap = self.heap
        if timer.slot < 0:
            timer.deadline = deadline
            timer.slot = len(heap)
            heap.append(timer)
            self._sift_up(timer)
            return
        earlier = deadline < timer.deadline
        timer.deadline = deadline
        if earlier:
            self._sift_up(timer)
        else:
            self._sift_down(timer)

    def cancel(self, timer: Timer) -> None:
        slot = timer.slot
        if slot < 0:
            return
        heap = self.heap
        timer.slot = -1
        moved = heap.pop()
        if moved is timer:
            return
        heap[slot] = moved
        moved.slot = slot
        if moved.deadline < timer.deadline:
            self._sift_up(moved)
        else:
            self._sift_down(moved)

    def _sift_up(self, timer: Timer) -> None:
        heap = self.heap
        slot = timer.slot
        deadline = timer.deadline
        while slot > 0:
            above = (slot - 1) // _ARITY
            parent = heap[above]
            if parent.deadline <= deadline:
                break
            heap[slot] = parent
            parent.slot = slot
            slot = above
        heap[slot] = timer
        timer.slot = slot

    def _sift_down(self, timer: Timer) -> None:
        heap = self.heap
        slot = timer.slot
        deadline = timer.deadline
        size: i64 = len(heap)
        while True:
            below = slot * _ARITY + 1
            if below >= size:
                break
            best = heap[below]
            end = below + _ARITY
            if end > size:
                end = size
            child = below + 1
            while child < end:
                other = heap[child]
                if other.deadline < best.deadline:
                    best = other
                child += 1
            if best.deadline >= deadline:
                break
            place = best.slot
            heap[slot] = best
            best.slot = slot
            slot = place
        heap[slot] = timer
        timer.slot = slot
