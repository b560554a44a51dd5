"""The jobs that are leased to this program: how many more it may have, which to extend and when."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from typing import Final

from taskyard.client.source import Job

_MOST_SETTLED: Final = 4000

# Where the number of jobs that are held ready is left to us, it is what is done in so many seconds
# at the pace of late: next to none of long ones, many of short ones.
_AHEAD: Final = 0.1
_MOST_AHEAD: Final = 1000
_MANY: Final = 8
_WINDOW: Final = 0.05  # seconds at least over which the pace is taken


class _Lease:
    __slots__ = ("due", "interval", "job", "lost", "settled")

    def __init__(self, job: Job, due: float, interval: float) -> None:
        self.job = job
        self.due = due  # when to extend it
        self.interval = interval  # from one extension to the next
        self.lost = False
        self.settled = False


class Held:
    """Shared by the threads of a runtime."""

    def __init__(self, size: int, prefetch: int | None, interval: float) -> None:
        """`size`: how many run at once. `prefetch`: how many more there may be; None: as many as
        are soon done. `interval`: seconds between two extensions of a lease.
        """
        self._size = size
        self._adapts = prefetch is None
        self._ahead = prefetch or 0
        self._interval = interval
        self._leases: dict[str, _Lease] = {}
        self._unsettled = 0
        self._settled = 0  # since the window began
        self._window = time.monotonic()
        self._waits = False  # whether somebody waits for room
        self._next_keep = 0.0
        self._call_at = math.inf
        lock = threading.Lock()
        self._room = threading.Condition(lock)
        self._sooner = threading.Condition(lock)  # a lease must be extended before the next keep

    def add(self, jobs: Iterable[Job]) -> None:
        now = time.monotonic()
        interval = self._interval
        soonest = now + interval
        with self._room:
            for job in jobs:
                # A lease may have begun long before we heard of it, or be shorter than those we
                # ask for, or be reckoned by another clock: rather too early than too late.
                due = now + (min(interval, job.lease / 3) if job.lease else interval)
                often = min(interval, job.span / 3) if job.span else interval
                self._leases[job.ref] = _Lease(job, due, often)
                self._unsettled += 1
                if due < soonest:
                    soonest = due
            if soonest < self._next_keep:
                self._sooner.notify()

    def settle(self, job: Job, was_run: bool = True) -> bool:
        """It has its verdict; it is held until the source knows that. False if it had one."""
        with self._room:
            lease = self._leases.get(job.ref)
            if lease is None or lease.settled:
                return False
            lease.settled = True
            self._unsettled -= 1
            self._settled += was_run
            if self._waits and self._has_room():
                self._waits = False
                self._room.notify()
            return True

    def remove(self, jobs: Iterable[Job]) -> None:
        """Of those that have their verdict."""
        with self._room:
            for job in jobs:
                del self._leases[job.ref]
            if self._waits:
                self._room.notify_all()

    def lose(self, job: Job) -> bool:
        """Do not extend it any more. False if it has its verdict, which may have been told
        meanwhile: then it is this program that has ended the lease.
        """
        with self._room:
            lease = self._leases.get(job.ref)
            if lease is None or lease.settled:
                return False
            job.lose()
            lease.lost = True
            return True

    def is_empty(self) -> bool:
        return not self._leases

    def unsettled(self) -> list[Job]:
        with self._room:
            return [lease.job for lease in self._leases.values() if not lease.settled]

    def wake(self) -> None:
        """Whoever waits looks whether it still should."""
        with self._room:
            self._room.notify_all()
            self._sooner.notify_all()

    def wait_for_room(self, stopping: threading.Event) -> int:
        """How many more jobs there may be, as soon as that is worth a take; 0 when stopping."""
        with self._room:
            self._take_pace()
            while not stopping.is_set() and not self._has_room():
                self._waits = True
                self._room.wait()
                self._take_pace()
            return 0 if stopping.is_set() else self._size + self._ahead - self._unsettled

    def wait_until_empty(self, stopping: threading.Event) -> None:
        with self._room:
            while self._leases and not stopping.is_set():
                self._waits = True
                self._room.wait()

    def excess(self) -> int:
        """How many there are that others could do sooner; none if the number is fixed."""
        with self._room:
            if not self._adapts:
                return 0
            self._take_pace()
            return max(self._unsettled - self._size - 2 * self._ahead, 0)

    def _has_room(self) -> bool:
        # Those that were run take up none, so that reporting them keeps nobody from the next; but
        # a source that cannot be told must not be taken from without end. Of those that are held
        # ready many are taken at a time, when half of them are gone.
        ahead = self._ahead if self._ahead < _MANY else self._ahead // 2
        few_enough = self._unsettled < self._size + ahead
        return few_enough and len(self._leases) < self._size + self._ahead + _MOST_SETTLED

    def _take_pace(self) -> None:
        if not self._adapts:
            return
        now = time.monotonic()
        passed = now - self._window
        if passed < _WINDOW and self._settled < self._size + self._ahead:
            return
        ahead = int(self._settled / max(passed, 1e-6) * _AHEAD)
        self._ahead = min(ahead, _MOST_AHEAD, 4 * (self._ahead + self._size))
        self._window, self._settled = now, 0

    def to_extend(self) -> list[Job] | None:
        """Those whose time has come; they come again after their interval. None if it is not even
        time to say that this program is alive.
        """
        now = time.monotonic()
        with self._room:
            due = [one for one in self._leases.values() if one.due <= now and not one.lost]
            if not due and now < self._next_keep:
                return None
            self._next_keep = now + self._interval
            for lease in due:
                lease.due = now + lease.interval
            return [lease.job for lease in due]

    def call_at(self, when: float) -> None:
        """Have `wait_until_due` return by then."""
        with self._sooner:
            if when < self._call_at:
                self._call_at = when
                self._sooner.notify()

    def wait_until_due(self, ended: threading.Event) -> None:
        """Until a lease is to be extended, or the program to say that it is alive, or it is time
        for what `call_at` was asked.
        """
        with self._sooner:
            while not ended.is_set():
                times = (lease.due for lease in self._leases.values() if not lease.lost)
                pause = min(times, default=self._next_keep)
                pause = min(pause, self._next_keep, self._call_at) - time.monotonic()
                if pause <= 0:
                    self._call_at = math.inf
                    return
                self._sooner.wait(pause)
