"""Where jobs are run: threads; processes and coroutines have modules of their own.

A pool runs what it is given and reports what came of it. It knows neither sources nor verdicts.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from taskyard.client.causes import Cause, describe, trimmed
from taskyard.client.source import Job
from taskyard.worker.interrupts import (
    GRACE,
    NEVER,
    NO_LIMITS,
    Cancelled,
    Limits,
    Place,
    ThreadPlace,
    Watch,
)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

log: Final = logging.getLogger("taskyard.worker")


@dataclass(frozen=True, slots=True)
class Crash:
    """In place of an outcome: the run ended without one, and why."""

    reason: str
    begun: bool = True  # else it is no fault of the job, which may be given back
    cause: Cause | None = field(default=None, compare=False)


def crash_of(error: BaseException, what: str = "") -> Crash:
    """`what` went wrong, if the error alone does not say it."""
    error = trimmed(error)
    return Crash(what + describe(error), cause=Cause(error))


Report: TypeAlias = Callable[[Job, T | Crash], None]
LimitsOf: TypeAlias = Callable[[Job], Limits]


def unlimited(job: Job) -> Limits:
    return NO_LIMITS


class Pool(Protocol[T_co]):
    size: int  # how many jobs it runs at once

    def start(self, report: Report[T_co]) -> None:
        """`report` is called once for each job, from any thread."""

    def submit(self, *jobs: Job) -> None: ...

    def withdraw(self, most: int | None = None) -> list[Job]:
        """Jobs that nobody has begun with, the last ones if not all; they will not be run."""

    def cancel(self, job: Job) -> None:
        """End the run of this job, or do not begin with it; it is reported all the same."""

    def close(self) -> None:
        """When nothing runs any more."""

    def kill(self) -> None:
        """End without waiting; nothing is reported from now on."""


class Line:
    """Jobs in line for threads. Threads that find one take it without a lock."""

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()
        self._more = threading.Condition(threading.Lock())
        self._idle = 0
        self._closed = False

    def put(self, jobs: Iterable[Job]) -> None:
        self._jobs.extend(jobs)
        with self._more:
            if self._idle:
                self._more.notify(len(self._jobs))

    def get(self) -> Job | None:
        """Waits; None if there is nothing, and nothing to come."""
        while True:
            try:
                return self._jobs.popleft()
            except IndexError:
                pass
            with self._more:
                if self._jobs:
                    continue
                if self._closed:
                    return None
                self._idle += 1
                try:
                    self._more.wait()
                finally:
                    self._idle -= 1

    def take_back(self, most: int | None = None) -> list[Job]:
        """The last ones, in their order."""
        found: list[Job] = []
        while most is None or len(found) < most:
            try:
                found.append(self._jobs.pop())
            except IndexError:
                break
        found.reverse()
        return found

    def close(self) -> None:
        with self._more:
            self._closed = True
            self._more.notify_all()


class ThreadPool(Generic[T]):
    """Threads of this process. One that is killed runs on to the end of its job or the program.

    If `execute` has a method `depart`, it is called at the end of each thread.
    """

    def __init__(
        self, execute: Callable[[Job], T], size: int, limits: LimitsOf = unlimited
    ) -> None:
        self.size = size
        self._execute = execute
        self._limits = limits
        self._line = Line()
        self._lock = threading.Lock()
        self._threads: dict[Place, threading.Thread] = {}
        self._dropped: set[str] = set()  # refs of jobs in line that are not to be run
        self._watch = Watch(lambda: list(self._threads))
        self._report: Report[T] = nobody
        self._killed = threading.Event()

    def start(self, report: Report[T]) -> None:
        self._report = report
        for number in range(self.size):
            self._hire(number)

    def submit(self, *jobs: Job) -> None:
        self._line.put(jobs)

    def withdraw(self, most: int | None = None) -> list[Job]:
        return self._line.take_back(most)

    def cancel(self, job: Job) -> None:
        with self._lock:
            self._dropped.add(job.ref)
            places = list(self._threads)
        if any(place.cancel(job) for place in places):
            self._watch.look_at(time.monotonic() + GRACE)

    def close(self) -> None:
        self._line.close()
        for thread in list(self._threads.values()):
            thread.join()
        self._watch.close()

    def kill(self) -> None:
        self._killed.set()
        self.withdraw()
        self._line.close()
        self._watch.close()

    def _hire(self, number: int) -> None:
        place = self._place(number)
        # Daemons, so that a program that was told to end at once does.
        thread = threading.Thread(
            target=self._work, args=(place,), name=f"taskyard-worker-{number}", daemon=True
        )
        with self._lock:
            self._threads[place] = thread
        thread.start()

    def _place(self, number: int) -> Place:
        return ThreadPlace(lambda place, job, why: self._abandon(place, number, job, why))

    def _abandon(self, place: Place, number: int, job: Job, why: str) -> None:
        """A thread cannot be killed: it is left alone, and another one does its work."""
        log.warning("job %s (%s): %s; its thread is left behind", job.ref, job.name, why)
        with self._lock:
            self._threads.pop(place, None)
        self._hire(number)
        if not self._killed.is_set():
            self._report(job, Crash(why))

    def _work(self, place: Place) -> None:
        place.settle_in()
        line, report = self._line, self._report
        while (job := line.get()) is not None:
            if self._dropped and self._drop(job):
                continue
            began = time.monotonic()
            outcome = self._outcome(job, place)
            job.seconds = time.monotonic() - began
            if self._dropped:
                self._dropped.discard(job.ref)
            if place.abandoned:
                break
            if not self._killed.is_set():
                report(job, outcome)
        depart = getattr(self._execute, "depart", None)
        if depart is not None:
            depart()

    def _drop(self, job: Job) -> bool:
        if job.ref not in self._dropped:
            return False
        self._dropped.discard(job.ref)
        self._report(job, Crash("it was cancelled before it began"))
        return True

    def _begin(self, job: Job, place: Place) -> None:
        when = place.begin(job, self._limits(job))
        if when < NEVER:
            self._watch.look_at(when)
        if self._dropped and job.ref in self._dropped:
            raise Cancelled  # just now, when it was neither in line nor here

    def _outcome(self, job: Job, place: Place) -> T | Crash:
        try:
            return self._try(job, place)
        except BaseException as error:  # from outside, while that of the job was being caught
            place.leave_surely()
            return crash_of(error)

    def _try(self, job: Job, place: Place) -> T | Crash:
        try:
            self._begin(job, place)
            outcome = self._execute(job)
            place.leave()
        except BaseException as error:  # also SystemExit: it would end the thread and nothing else
            place.leave_surely()
            return crash_of(error)
        return outcome


def nobody(job: Job, outcome: object) -> None:
    """To whom a pool reports before it is started."""
    raise AssertionError("the pool has not been started")
