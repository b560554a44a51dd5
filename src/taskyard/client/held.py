"""The jobs that are leased to this program: how many more it may have, which to extend and when."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Final

from taskyard.client.source import Job

_MOST_SETTLED: Final = 1000


class _Lease:
    __slots__ = ("due", "job", "lost", "settled")

    def __init__(self, job: Job, due: float) -> None:
        self.job = job
        self.due = due  # when to extend it
        self.lost = False
        self.settled = False


class Held:
    """Shared by the threads of a runtime."""

    def __init__(self, most: int, interval: float) -> None:
        """`interval`: seconds between two extensions of a lease."""
        self._most = most
        self._interval = interval
        self._leases: dict[str, _Lease] = {}
        self._unsettled = 0
        self._next_keep = 0.0
        lock = threading.Lock()
        self._room = threading.Condition(lock)
        self._sooner = threading.Condition(lock)  # a lease must be extended before the next keep

    def add(self, jobs: Iterable[Job]) -> None:
        now = time.monotonic()
        with self._room:
            for job in jobs:
                # A lease may have begun long before we heard of it, or be shorter than those we
                # ask for, or be reckoned by another clock: rather too early than too late.
                pause = min(self._interval, job.lease / 3) if job.lease else self._interval
                lease = _Lease(job, now + pause)
                self._leases[job.ref] = lease
                self._unsettled += 1
                if lease.due < self._next_keep:
                    self._sooner.notify()

    def settle(self, job: Job) -> bool:
        """It has its verdict; it is held until the source knows that. False if it had one."""
        with self._room:
            lease = self._leases.get(job.ref)
            if lease is None or lease.settled:
                return False
            lease.settled = True
            self._unsettled -= 1
            self._room.notify()
            return True

    def remove(self, jobs: Iterable[Job]) -> None:
        """Of those that have their verdict."""
        with self._room:
            for job in jobs:
                del self._leases[job.ref]
            self._room.notify()

    def lose(self, job: Job) -> None:
        """Do not extend it any more."""
        with self._room:
            if job.ref in self._leases:
                self._leases[job.ref].lost = True

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
        """How many more jobs there may be, as soon as that is one; 0 when stopping."""
        with self._room:
            self._room.wait_for(lambda: stopping.is_set() or self._has_room())
            return 0 if stopping.is_set() else self._most - self._unsettled

    def _has_room(self) -> bool:
        # Those that were run take up none, so that reporting them keeps nobody from the next; but
        # a source that cannot be told must not be taken from without end.
        return self._unsettled < self._most and len(self._leases) < self._most + _MOST_SETTLED

    def to_extend(self) -> list[Job]:
        """Those whose time has come; they come again after the interval."""
        now = time.monotonic()
        with self._room:
            self._next_keep = now + self._interval
            due = [one for one in self._leases.values() if one.due <= now and not one.lost]
            for lease in due:
                lease.due = self._next_keep
            return [lease.job for lease in due]

    def wait_until_due(self, ended: threading.Event) -> None:
        """Until a lease is to be extended, or the program to say that it is alive."""
        with self._sooner:
            while not ended.is_set():
                times = (lease.due for lease in self._leases.values() if not lease.lost)
                pause = min(times, default=self._next_keep)
                pause = min(pause, self._next_keep) - time.monotonic()
                if pause <= 0:
                    return
                self._sooner.wait(pause)
