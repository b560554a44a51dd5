"""Pools that run jobs: threads; processes and coroutines have modules of their own.

A pool runs its jobs and reports the outcomes. It knows neither sources nor verdicts.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from taskyard.client.causes import Cause, describe_error, trim_traceback
from taskyard.client.source import Job
from taskyard.worker.interrupts import (
    CANCEL_GRACE_S,
    NEVER,
    NO_TIME_LIMITS,
    Cancelled,
    Slot,
    ThreadSlot,
    TimeLimits,
    TimeLimitWatcher,
)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

log: Final = logging.getLogger("taskyard.worker")


@dataclass(frozen=True, slots=True)
class RunFailure:
    """In place of an outcome: the run ended without one, and why."""

    reason: str
    begun: bool = True  # else it is no fault of the job, which may be released
    cause: Cause | None = field(default=None, compare=False)


def failure_of(error: BaseException, what: str = "") -> RunFailure:
    """`what` went wrong, if the error alone does not say it."""
    error = trim_traceback(error)
    return RunFailure(what + describe_error(error), cause=Cause(error))


Report: TypeAlias = Callable[[Job, T | RunFailure], None]
TimeLimitsOf: TypeAlias = Callable[[Job], TimeLimits]


def no_time_limits(job: Job) -> TimeLimits:
    return NO_TIME_LIMITS


class Pool(Protocol[T_co]):
    size: int  # how many jobs it runs at the same time

    def start(self, report: Report[T_co]) -> None:
        """`report` is called once for each job, from any thread."""

    def submit(self, *jobs: Job) -> None: ...

    def withdraw(self, most: int | None = None) -> list[Job]:
        """Withdraw jobs that have not begun, the last ones if not all; they will not be run."""

    def cancel(self, job: Job) -> None:
        """End the run of this job, or do not begin with it; it is reported all the same."""

    def close(self) -> None:
        """When nothing runs any more."""

    def kill(self) -> None:
        """End without waiting; nothing is reported from now on."""


class JobQueue:
    """Jobs queued for threads. Threads that find one take it without a lock."""

    def __init__(self) -> None:
        self._jobs: deque[Job] = deque()
        self._jobs_added = threading.Condition(threading.Lock())
        self._idle = 0
        self._closed = False

    def put(self, jobs: Iterable[Job]) -> None:
        self._jobs.extend(jobs)
        with self._jobs_added:
            if self._idle:
                self._jobs_added.notify(len(self._jobs))

    def get(self) -> Job | None:
        """Wait for a job; None if there is none, and will be none."""
        while True:
            try:
                return self._jobs.popleft()
            except IndexError:
                pass
            with self._jobs_added:
                if self._jobs:
                    continue
                if self._closed:
                    return None
                self._idle += 1
                try:
                    self._jobs_added.wait()
                finally:
                    self._idle -= 1

    def withdraw_last(self, most: int | None = None) -> list[Job]:
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
        with self._jobs_added:
            self._closed = True
            self._jobs_added.notify_all()


class ThreadPool(Generic[T]):
    """Threads of this process. One that is killed runs on to the end of its job or the program.

    If `execute` has a method `on_thread_end`, it is called at the end of each thread.
    """

    def __init__(
        self, execute: Callable[[Job], T], size: int, limits: TimeLimitsOf = no_time_limits
    ) -> None:
        self.size = size
        self._execute = execute
        self._limits = limits
        self._queue = JobQueue()
        self._lock = threading.Lock()
        self._threads: dict[Slot, threading.Thread] = {}
        self._cancelled_refs: set[str] = set()  # refs of queued jobs that are not to be run
        self._watcher = TimeLimitWatcher(lambda: list(self._threads))
        self._report: Report[T] = unset_reporter
        self._killed = threading.Event()

    def start(self, report: Report[T]) -> None:
        self._report = report
        for number in range(self.size):
            self._start_thread(number)

    def submit(self, *jobs: Job) -> None:
        self._queue.put(jobs)

    def withdraw(self, most: int | None = None) -> list[Job]:
        return self._queue.withdraw_last(most)

    def cancel(self, job: Job) -> None:
        with self._lock:
            self._cancelled_refs.add(job.ref)
            places = list(self._threads)
        if any(place.cancel_run(job) for place in places):
            self._watcher.check_at(time.monotonic() + CANCEL_GRACE_S)

    def close(self) -> None:
        self._queue.close()
        for thread in list(self._threads.values()):
            thread.join()
        self._watcher.close()

    def kill(self) -> None:
        self._killed.set()
        self.withdraw()
        self._queue.close()
        self._watcher.close()

    def _start_thread(self, number: int) -> None:
        place = self._create_slot(number)
        # Daemons, so that a program that has to end at once does.
        thread = threading.Thread(
            target=self._run_jobs, args=(place,), name=f"taskyard-worker-{number}", daemon=True
        )
        with self._lock:
            self._threads[place] = thread
        thread.start()

    def _create_slot(self, number: int) -> Slot:
        return ThreadSlot(lambda place, job, why: self._replace_thread(place, number, job, why))

    def _replace_thread(self, place: Slot, number: int, job: Job, why: str) -> None:
        """A thread cannot be killed: it is left alone, and another one does its work."""
        log.warning("job %s (%s): %s; its thread is abandoned", job.ref, job.name, why)
        with self._lock:
            self._threads.pop(place, None)
        self._start_thread(number)
        if not self._killed.is_set():
            self._report(job, RunFailure(why))

    def _run_jobs(self, place: Slot) -> None:
        place.attach_thread()
        line, report = self._queue, self._report
        while (job := line.get()) is not None:
            if self._cancelled_refs and self._report_if_cancelled(job):
                continue
            began = time.monotonic()
            outcome = self._run_job(job, place)
            job.seconds = time.monotonic() - began
            if self._cancelled_refs:
                self._cancelled_refs.discard(job.ref)
            if place.abandoned:
                break
            if not self._killed.is_set():
                report(job, outcome)
        on_thread_end = getattr(self._execute, "on_thread_end", None)
        if on_thread_end is not None:
            on_thread_end()

    def _report_if_cancelled(self, job: Job) -> bool:
        if job.ref not in self._cancelled_refs:
            return False
        self._cancelled_refs.discard(job.ref)
        self._report(job, RunFailure("it was cancelled before it began"))
        return True

    def _begin_run(self, job: Job, place: Slot) -> None:
        when = place.begin_run(job, self._limits(job))
        if when < NEVER:
            self._watcher.check_at(when)
        if self._cancelled_refs and job.ref in self._cancelled_refs:
            raise Cancelled  # just now, when it was neither queued nor here

    def _run_job(self, job: Job, place: Slot) -> T | RunFailure:
        try:
            return self._try_run(job, place)
        except BaseException as error:  # from outside, while that of the job was being caught
            place.end_run_uninterrupted()
            return failure_of(error)

    def _try_run(self, job: Job, place: Slot) -> T | RunFailure:
        try:
            self._begin_run(job, place)
            outcome = self._execute(job)
            place.end_run()
        except BaseException as error:  # also SystemExit: it would end the thread and nothing else
            place.end_run_uninterrupted()
            return failure_of(error)
        return outcome


def unset_reporter(job: Job, outcome: object) -> None:
    """The reporter of a pool before it is started."""
    raise AssertionError("the pool has not been started")
