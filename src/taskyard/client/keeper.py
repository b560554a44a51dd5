"""Extends the leases of a blocking client, in a thread that exists while it holds leases."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from taskyard.client.errors import Refused, Unavailable
from taskyard.client.leases import LeaseTable
from taskyard.client.source import Job

if TYPE_CHECKING:
    import logging

ExtendLeases: TypeAlias = Callable[[Sequence[tuple[str, float]]], list[float | Refused]]

_IDLE_THREAD_S: Final = 2.0  # seconds for which the thread waits for the next job


class LeaseKeeper:
    """Threads may share it; the child of a fork begins with nothing."""

    def __init__(self, extend: ExtendLeases, on_lost: Callable[[Job], object] | None) -> None:
        """`extend`: refs and seconds to when each lease ends by the server's clock."""
        self._extend = extend
        self._on_lost = on_lost
        self._reset()
        _keepers.add(self)

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._leases = LeaseTable()
        self._running = False
        self._closed = False

    def reset_after_fork(self) -> None:
        closed = self._closed
        self._reset()
        self._closed = closed

    def add(self, jobs: Sequence[Job], requested_duration: float | None) -> None:
        with self._changed:
            self._leases.add(jobs, requested_duration, time.monotonic())
            if len(self._leases) and not self._running and not self._closed:
                self._running = True
                threading.Thread(target=self._run, name="taskyard-leases", daemon=True).start()
            self._changed.notify()

    def start_finish(self, job: Job) -> float:
        with self._changed:
            return self._leases.start_finish(job)

    def abort_finish(self, job: Job) -> None:
        with self._changed:
            self._leases.abort_finish(job)

    def finish(self, job: Job) -> None:
        with self._changed:
            self._leases.finish(job)

    def set_duration(self, job: Job, seconds: float) -> None:
        with self._changed:
            self._leases.set_duration(job, seconds)

    def on_duration_set(self, job: Job, seconds: float, deadline: float) -> None:
        with self._changed:
            self._leases.on_duration_set(job, seconds, deadline, time.monotonic())
            self._changed.notify()

    def close(self) -> None:
        """The leases that are left end by their time."""
        with self._changed:
            self._closed = True
            self._leases.clear()
            self._changed.notify()

    def _run(self) -> None:
        while self._wait_until_due():
            self._extend_due()

    def _wait_until_due(self) -> bool:
        """Wait until a lease is to be extended; false, and the thread ends, when there is none."""
        with self._changed:
            linger = time.monotonic() + _IDLE_THREAD_S
            while not self._closed:
                now = time.monotonic()
                due = self._leases.next_due()
                if due is not None:
                    linger = now + _IDLE_THREAD_S
                    if due <= now:
                        return True
                # Not until it is due: the end of a job wakes no thread, which would cost time for
                # each one.
                until = linger if due is None else min(due, linger)
                if until <= now:
                    break
                self._changed.wait(until - now)
            self._running = False
            return False

    def _extend_due(self) -> None:
        with self._changed:
            due = self._leases.collect_due(time.monotonic())
        try:
            answers = self._extend([(held.job.ref, seconds) for held, seconds in due])
        except Exception as error:  # whatever it is: without this thread all leases would end
            log_extension_error(error)
            with self._changed:
                for held, _ in due:
                    self._leases.on_unreachable(held, time.monotonic())
            return
        now = time.monotonic()
        with self._changed:
            lost = [
                self._leases.on_extended(held, seconds, answer, now)
                for (held, seconds), answer in zip(due, answers, strict=True)
            ]
        for job in lost:
            if job is not None:
                report_lost_lease(job, self._on_lost)


def _client_log() -> logging.Logger:
    import logging  # with the first message

    return logging.getLogger("taskyard.client")


def log_extension_error(error: Exception) -> None:
    tell = _client_log().info if isinstance(error, Unavailable) else _client_log().error
    tell("cannot extend leases: %s", error)


def report_lost_lease(job: Job, on_lost: Callable[[Job], object] | None) -> None:
    if on_lost is None:
        _client_log().warning(
            "the lease of job %d of %s was lost: it may run twice", job.id, job.queue
        )
        return
    try:
        on_lost(job)
    except Exception:
        _client_log().exception("on_lost failed for job %d of %s", job.id, job.queue)


_keepers: Final[weakref.WeakSet[LeaseKeeper]] = weakref.WeakSet()


def _reset_keepers_after_fork() -> None:
    for keeper in list(_keepers):
        keeper.reset_after_fork()


os.register_at_fork(after_in_child=_reset_keepers_after_fork)
