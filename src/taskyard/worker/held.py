"""The jobs that are leased to this program: how many more it may have, which to extend and when."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from typing import Final

from taskyard.client.source import Job

_MAX_UNREPORTED: Final = 4000

# By default the number of jobs that are held ready is what is done in so many seconds at the recent
# rate: next to none of long ones, many of short ones.
_PREFETCH_S: Final = 0.1
_MAX_PREFETCH: Final = 1000
_LARGE_PREFETCH: Final = 8
_RATE_WINDOW_S: Final = 0.05  # seconds at least over which the pace is taken


class _Lease:
    __slots__ = ("extend_at", "finished", "interval", "job", "lost")

    def __init__(self, job: Job, due: float, interval: float) -> None:
        self.job = job
        self.extend_at = due  # when to extend it
        self.interval = interval  # from one extension to the next
        self.lost = False
        self.finished = False


class LeasedJobs:
    """Shared by the threads of a runtime."""

    def __init__(self, size: int, prefetch: int | None, interval: float) -> None:
        """`size`: how many run at once. `prefetch`: how many more there may be; None: as many as
        are soon done. `interval`: seconds between two extensions of a lease.
        """
        self._size = size
        self._adapts_prefetch = prefetch is None
        self._prefetch = prefetch or 0
        self._interval = interval
        self._leases: dict[str, _Lease] = {}
        self._unfinished_count = 0
        self._finished_in_window = 0  # since the window began
        self._window_start = time.monotonic()
        self._has_waiter = False  # whether a thread waits for capacity
        self._next_extension = 0.0
        self._wake_at = math.inf
        lock = threading.Lock()
        self._capacity_freed = threading.Condition(lock)
        self._due_sooner = threading.Condition(
            lock
        )  # a lease must be extended before the next keep

    def add(self, jobs: Iterable[Job]) -> None:
        now = time.monotonic()
        interval = self._interval
        soonest = now + interval
        with self._capacity_freed:
            for job in jobs:
                # A lease may have begun long before we got it, or be shorter than those we
                # request, or be measured by another clock: rather too early than too late.
                due = now + (min(interval, job.lease / 3) if job.lease else interval)
                often = min(interval, job.span / 3) if job.span else interval
                self._leases[job.ref] = _Lease(job, due, often)
                self._unfinished_count += 1
                if due < soonest:
                    soonest = due
            if soonest < self._next_extension:
                self._due_sooner.notify()

    def mark_finished(self, job: Job, was_run: bool = True) -> bool:
        """Note its verdict; it is held until the source has that. False if it had one."""
        with self._capacity_freed:
            lease = self._leases.get(job.ref)
            if lease is None or lease.finished:
                return False
            lease.finished = True
            self._unfinished_count -= 1
            self._finished_in_window += was_run
            if self._has_waiter and self._has_capacity():
                self._has_waiter = False
                self._capacity_freed.notify()
            return True

    def remove(self, jobs: Iterable[Job]) -> None:
        """Remove jobs that have their verdict."""
        with self._capacity_freed:
            for job in jobs:
                del self._leases[job.ref]
            if self._has_waiter:
                self._capacity_freed.notify_all()

    def mark_lost(self, job: Job) -> bool:
        """Do not extend it any more.

        False if it has its verdict, which may have been reported meanwhile: then it is this program
        that has ended the lease.
        """
        with self._capacity_freed:
            lease = self._leases.get(job.ref)
            if lease is None or lease.finished:
                return False
            job.lose()
            lease.lost = True
            return True

    def is_empty(self) -> bool:
        return not self._leases

    def unfinished_jobs(self) -> list[Job]:
        with self._capacity_freed:
            return [lease.job for lease in self._leases.values() if not lease.finished]

    def wake_waiters(self) -> None:
        """Have waiting threads check whether they still should."""
        with self._capacity_freed:
            self._capacity_freed.notify_all()
            self._due_sooner.notify_all()

    def wait_for_capacity(self, stopping: threading.Event) -> int:
        """How many more jobs there may be, as soon as that is worth a take; 0 when stopping."""
        with self._capacity_freed:
            self._update_rate()
            while not stopping.is_set() and not self._has_capacity():
                self._has_waiter = True
                self._capacity_freed.wait()
                self._update_rate()
            return 0 if stopping.is_set() else self._size + self._prefetch - self._unfinished_count

    def wait_until_empty(self, stopping: threading.Event) -> None:
        with self._capacity_freed:
            while self._leases and not stopping.is_set():
                self._has_waiter = True
                self._capacity_freed.wait()

    def surplus(self) -> int:
        """Return how many there are that others could run sooner; none if the number is fixed."""
        with self._capacity_freed:
            if not self._adapts_prefetch:
                return 0
            self._update_rate()
            return max(self._unfinished_count - self._size - 2 * self._prefetch, 0)

    def _has_capacity(self) -> bool:
        # Those that were run take up none, so that reporting them delays no other; but there must
        # be a limit while the source is unreachable. Of those that are held ready many are taken at
        # a time, when half of them are gone.
        ahead = self._prefetch if self._prefetch < _LARGE_PREFETCH else self._prefetch // 2
        few_enough = self._unfinished_count < self._size + ahead
        return few_enough and len(self._leases) < self._size + self._prefetch + _MAX_UNREPORTED

    def _update_rate(self) -> None:
        if not self._adapts_prefetch:
            return
        now = time.monotonic()
        passed = now - self._window_start
        if passed < _RATE_WINDOW_S and self._finished_in_window < self._size + self._prefetch:
            return
        ahead = int(self._finished_in_window / max(passed, 1e-6) * _PREFETCH_S)
        self._prefetch = min(ahead, _MAX_PREFETCH, 4 * (self._prefetch + self._size))
        self._window_start, self._finished_in_window = now, 0

    def collect_due(self) -> list[Job] | None:
        """Return those whose time has come; they are due again after their interval.

        None if it is not even time to say that this program is alive.
        """
        now = time.monotonic()
        with self._capacity_freed:
            due = [one for one in self._leases.values() if one.extend_at <= now and not one.lost]
            if not due and now < self._next_extension:
                return None
            self._next_extension = now + self._interval
            for lease in due:
                lease.extend_at = now + lease.interval
            return [lease.job for lease in due]

    def wake_by(self, when: float) -> None:
        """Have `wait_until_due` return by then."""
        with self._due_sooner:
            if when < self._wake_at:
                self._wake_at = when
                self._due_sooner.notify()

    def wait_until_due(self, ended: threading.Event) -> None:
        """Wait until a lease is to be extended, or the program has to say that it is alive, or
        another time is due.
        """
        with self._due_sooner:
            while not ended.is_set():
                times = (lease.extend_at for lease in self._leases.values() if not lease.lost)
                pause = min(times, default=self._next_extension)
                pause = min(pause, self._next_extension, self._wake_at) - time.monotonic()
                if pause <= 0:
                    self._wake_at = math.inf
                    return
                self._due_sooner.wait(pause)
