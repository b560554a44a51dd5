"""Extends the leases of a blocking client, in a thread that there is while something is held."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from taskyard.client.errors import Refused, Unavailable
from taskyard.client.leases import Book
from taskyard.client.source import Job

if TYPE_CHECKING:
    import logging

Extend: TypeAlias = Callable[[Sequence[tuple[str, float]]], list[float | Refused]]

_LINGER: Final = 2.0  # seconds for which the thread waits for the next job


class Keeper:
    """Threads may share it; the child of a fork begins with nothing."""

    def __init__(self, extend: Extend, on_lost: Callable[[Job], object] | None) -> None:
        """`extend`: refs and seconds to when each lease ends by the server's clock."""
        self._extend = extend
        self._on_lost = on_lost
        self._begin()
        _keepers.add(self)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._book = Book()
        self._running = False
        self._closed = False

    def forked(self) -> None:
        closed = self._closed
        self._begin()
        self._closed = closed

    def add(self, jobs: Sequence[Job], wanted: float | None) -> None:
        with self._changed:
            self._book.add(jobs, wanted, time.monotonic())
            if len(self._book) and not self._running and not self._closed:
                self._running = True
                threading.Thread(target=self._run, name="taskyard-leases", daemon=True).start()
            self._changed.notify()

    def begin_end(self, job: Job) -> float:
        with self._changed:
            return self._book.begin_end(job)

    def give_up_end(self, job: Job) -> None:
        with self._changed:
            self._book.give_up_end(job)

    def end(self, job: Job) -> None:
        with self._changed:
            self._book.end(job)

    def choose_span(self, job: Job, seconds: float) -> None:
        with self._changed:
            self._book.choose_span(job, seconds)

    def chosen(self, job: Job, seconds: float, deadline: float) -> None:
        with self._changed:
            self._book.chosen(job, seconds, deadline, time.monotonic())
            self._changed.notify()

    def close(self) -> None:
        """The leases that are left end by their time."""
        with self._changed:
            self._closed = True
            self._book.clear()
            self._changed.notify()

    def _run(self) -> None:
        while self._wait():
            self._keep()

    def _wait(self) -> bool:
        """Until a lease is to be extended; false, and the thread ends, when there is none."""
        with self._changed:
            linger = time.monotonic() + _LINGER
            while not self._closed:
                now = time.monotonic()
                due = self._book.next_due()
                if due is not None:
                    linger = now + _LINGER
                    if due <= now:
                        return True
                # Not until it is due: the end of a job wakes nobody, which would cost each one.
                until = linger if due is None else min(due, linger)
                if until <= now:
                    break
                self._changed.wait(until - now)
            self._running = False
            return False

    def _keep(self) -> None:
        with self._changed:
            due = self._book.due(time.monotonic())
        try:
            answers = self._extend([(held.job.ref, seconds) for held, seconds in due])
        except Exception as error:  # whatever it is: without this thread all leases would end
            report_unextended(error)
            with self._changed:
                for held, _ in due:
                    self._book.unreached(held, time.monotonic())
            return
        now = time.monotonic()
        with self._changed:
            lost = [
                self._book.extended(held, seconds, answer, now)
                for (held, seconds), answer in zip(due, answers, strict=True)
            ]
        for job in lost:
            if job is not None:
                report_lost(job, self._on_lost)


def _log() -> logging.Logger:
    import logging  # when first there is something to tell

    return logging.getLogger("taskyard.client")


def report_unextended(error: Exception) -> None:
    tell = _log().info if isinstance(error, Unavailable) else _log().error
    tell("leases cannot be extended now: %s", error)


def report_lost(job: Job, on_lost: Callable[[Job], object] | None) -> None:
    if on_lost is None:
        _log().warning("the lease of job %d of %s was lost: it may run twice", job.id, job.queue)
        return
    try:
        on_lost(job)
    except Exception:
        _log().exception("on_lost failed for job %d of %s", job.id, job.queue)


_keepers: Final[weakref.WeakSet[Keeper]] = weakref.WeakSet()


def _forked() -> None:
    for keeper in list(_keepers):
        keeper.forked()


os.register_at_fork(after_in_child=_forked)
