"""Pools that run jobs: threads here; processes.py and coroutines.py have the others.

A pool runs its jobs and reports the outcomes. It knows neither sources nor verdicts. It has slots;
in each of them one job runs at a time, and there the run can be ended from outside.
"""

from __future__ import annotations

import ctypes
import itertools
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from taskyard.client.causes import Cause, describe_error, trim_traceback
from taskyard.client.source import Job

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

log: Final = logging.getLogger("taskyard.worker")

NEVER: Final = math.inf
CANCEL_GRACE_S: Final = 10.0  # seconds that a run has to end by itself after it was cancelled


# Ending a run from outside: its time is over, or its lease was lost


class SoftTimeLimit(Exception):
    """Raised inside a task that runs for longer than its soft time limit.

    It may tidy up, and even succeed, until the hard limit.
    """

    def __str__(self) -> str:
        return super().__str__() or "it ran for longer than its soft time limit"


class Cancelled(BaseException):
    """Raised inside a task that must not continue: its job was deleted, or is another worker's now.

    Not an Exception, so that a task that catches those does not catch this by mistake.
    """

    def __str__(self) -> str:
        return super().__str__() or "the job was deleted, or is another worker's now"


Reason: TypeAlias = type[SoftTimeLimit] | type[Cancelled]


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Seconds that a run may take; infinite: any."""

    soft: float = NEVER
    hard: float = NEVER


NO_TIME_LIMITS: Final = TimeLimits()


class Slot:
    """Where one job runs at a time. Others may end its run, but never that of the next job."""

    abandoned = False  # whether its thread is left to itself, and has nothing more to do here

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.job: Job | None = None
        self.soft_at = NEVER
        self.hard_at = NEVER
        self.end_reason = ""

    def attach_thread(self) -> None:
        """Call it in the thread of this slot."""

    def begin_run(self, job: Job, limits: TimeLimits) -> float:
        """Return when to check it."""
        with self.lock:
            self.job = job
            if limits is NO_TIME_LIMITS:
                return NEVER
            now = time.monotonic()
            self.soft_at = now + limits.soft
            self.hard_at = now + limits.hard
            self.end_reason = (
                f"it was still running after its time limit of {limits.hard:g} seconds"
            )
            return min(self.soft_at, self.hard_at)

    def end_run(self) -> None:
        """The run is over: no interruption is raised any more."""
        with self.lock:
            self.job = None
            self.soft_at = self.hard_at = NEVER

    def end_run_uninterrupted(self) -> None:
        """The same after an exception, which may be an interruption just before the end."""
        while True:
            try:
                self.end_run()
            except (SoftTimeLimit, Cancelled):
                continue
            return

    def cancel_run(self, job: Job) -> bool:
        """Have the run of this job end, by force after a while; False if it is not here."""
        with self.lock:
            if self.job is not job:
                return False
            self.hard_at = min(self.hard_at, time.monotonic() + CANCEL_GRACE_S)
            self.end_reason = "it was cancelled and did not end"
            self.soft_at = NEVER
            self.interrupt_run(Cancelled)
            return True

    def enforce_limits(self, now: float) -> float:
        """Do what is due; return when to check again."""
        with self.lock:
            if self.job is None:
                return NEVER
            if self.hard_at <= now:
                self.soft_at = self.hard_at = NEVER
                self.force_end(self.job)
            elif self.soft_at <= now:
                self.soft_at = NEVER
                self.interrupt_run(SoftTimeLimit)
            return min(self.soft_at, self.hard_at)

    def interrupt_run(self, reason: Reason) -> None:
        """Raise this in the run; called with the lock."""
        raise NotImplementedError

    def force_end(self, job: Job) -> None:
        """Abandon the run; called with the lock."""
        raise NotImplementedError


class ThreadSlot(Slot):
    """A thread of this process, in which an exception can be raised, but which cannot be killed."""

    def __init__(self, abandon: Callable[[ThreadSlot, Job, str], None]) -> None:
        super().__init__()
        self._abandon = abandon
        self._thread = 0
        self._interrupt_sent = False
        self._redirected_interrupt: Callable[[Reason], None] | None = None

    def attach_thread(self) -> None:
        self._thread = threading.get_ident()
        _thread_state.slot = self

    def redirect_interrupts(self, interrupt: Callable[[Reason], None] | None) -> None:
        """The run is one of coroutines: interrupt its event loop, and not the thread."""
        with self.lock:
            self._redirected_interrupt = interrupt

    def end_run(self) -> None:
        with self.lock:
            self.job = None
            self.soft_at = self.hard_at = NEVER
            self._redirected_interrupt = None
            if self._interrupt_sent:
                self._interrupt_sent = False
                _raise_in(self._thread, None)  # one that has not been raised yet

    def interrupt_run(self, reason: Reason) -> None:
        if self._redirected_interrupt is not None:
            self._redirected_interrupt(reason)
            return
        self._interrupt_sent = True
        _raise_in(self._thread, reason)

    def force_end(self, job: Job) -> None:
        self.abandoned = True
        self.interrupt_run(Cancelled)
        self.job = None
        self._abandon(self, job, self.end_reason)


class _ThreadState(threading.local):
    slot: ThreadSlot | None = None


_thread_state: Final = _ThreadState()


def current_slot() -> ThreadSlot | None:
    """Return the slot of this thread."""
    return _thread_state.slot


def _raise_in(thread: int, reason: Reason | None) -> None:
    """Python raises it there before its next instruction, so not while it waits in C code.

    None takes back one that has not been raised.
    """
    what = ctypes.py_object() if reason is None else ctypes.py_object(reason)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), what)


class TimeLimitWatcher:
    """A thread that checks the slots that have a time limit, and does what is due there.

    It is started when it is first needed.
    """

    def __init__(self, slots: Callable[[], Iterable[Slot]]) -> None:
        self._slots = slots
        self._due_sooner = threading.Condition()
        self._next_check_at = NEVER
        self._thread: threading.Thread | None = None
        self._closed = False

    def check_at(self, when: float) -> None:
        """Something is due at that time."""
        if when >= self._next_check_at:  # without the lock: it checks earlier, and then notices
            return
        with self._due_sooner:
            self._next_check_at = min(self._next_check_at, when)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="taskyard-watch")
                self._thread.daemon = True
                self._thread.start()
            self._due_sooner.notify()

    def close(self) -> None:
        with self._due_sooner:
            self._closed = True
            self._due_sooner.notify()

    def _run(self) -> None:
        while True:
            with self._due_sooner:
                while not self._closed and (pause := self._next_check_at - time.monotonic()) > 0:
                    self._due_sooner.wait(
                        None if pause == NEVER else min(pause, threading.TIMEOUT_MAX)
                    )
                if self._closed:
                    return
                self._next_check_at = NEVER
            self._check_slots()

    def _check_slots(self) -> None:
        for place in list(self._slots()):
            try:
                self.check_at(place.enforce_limits(time.monotonic()))
            except Exception:
                log.exception("cannot end a run")


# Pools


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


# Threads


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


def unset_reporter(job: Job, outcome: object) -> None:
    """The reporter of a pool before it is started."""
    raise AssertionError("the pool has not been started")


# Groups of jobs that are run together


class GroupingPool(Generic[T]):
    """Has another pool run groups of the jobs with these names, and the others one by one.

    The jobs of one fetch are one group, so that no job waits for a group to be full: groups are
    large when there is much to do, and small when there is little.
    """

    def __init__(self, pool: Pool[Any], sizes: Mapping[str, int]) -> None:
        """`sizes`: the most jobs of a group, by name."""
        self.size = pool.size * max(sizes.values(), default=1)
        self._pool = pool
        self._sizes = sizes
        self._group_numbers = itertools.count(1)
        self._report: Report[T] | None = None

    def start(self, report: Report[T]) -> None:
        self._report = report
        self._pool.start(self._report_members)

    def submit(self, *jobs: Job) -> None:
        alone: list[Job] = []
        together: dict[tuple[str, str], list[Job]] = {}
        for job in jobs:
            if job.name in self._sizes:
                together.setdefault((job.name, job.queue), []).append(job)
            else:
                alone.append(job)
        bundles = [
            self._make_group(name, queue, members[at : at + self._sizes[name]])
            for (name, queue), members in together.items()
            for at in range(0, len(members), self._sizes[name])
        ]
        self._pool.submit(*bundles, *alone)

    def _make_group(self, name: str, queue: str, jobs: list[Job]) -> JobGroup:
        return JobGroup(f"bundle-{next(self._group_numbers)}", queue, b"", name, jobs=jobs)

    def withdraw(self, most: int | None = None) -> list[Job]:
        """Withdraw whole groups, so it may be a few more."""
        if most is None:
            return _flatten_groups(self._pool.withdraw())
        found: list[Job] = []
        while len(found) < most and (last := self._pool.withdraw(1)):
            found = _flatten_groups(last) + found
        return found

    def cancel(self, job: Job) -> None:
        # One of a group is run with the others; that its outcome is too late is reported then.
        if job.name not in self._sizes:
            self._pool.cancel(job)

    def close(self) -> None:
        self._pool.close()

    def kill(self) -> None:
        self._pool.kill()

    def _report_members(self, job: Job, outcome: Any) -> None:
        assert self._report is not None
        if not isinstance(job, JobGroup):
            self._report(job, outcome)
            return
        outcomes = [outcome] * len(job.jobs) if isinstance(outcome, RunFailure) else outcome
        for member, its_own in zip(job.jobs, outcomes, strict=True):
            member.seconds = job.seconds
            self._report(member, its_own)


@dataclass(slots=True, eq=False)
class JobGroup(Job):
    """Jobs of one name, run as one. Their outcome is a list, of one outcome for each."""

    jobs: Sequence[Job] = ()


def _flatten_groups(jobs: Sequence[Job]) -> list[Job]:
    found: list[Job] = []
    for job in jobs:
        found += job.jobs if isinstance(job, JobGroup) else [job]
    return found
