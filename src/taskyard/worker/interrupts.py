"""Ends a run from outside: when its time is over, or when its lease was lost.

A pool has slots; in each of them one job runs at a time. A time limit watcher checks the slots that
have a limit, and does what is due.
"""

from __future__ import annotations

import ctypes
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from taskyard.client.source import Job

log: Final = logging.getLogger("taskyard.worker")

NEVER: Final = math.inf
CANCEL_GRACE_S: Final = 10.0  # seconds that a run has to end by itself after it was cancelled


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
    """A thread that checks slots when something is due there; started when first needed."""

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
