"""Where jobs are run: threads; processes and coroutines have modules of their own.

A pool runs what it is given and reports what came of it. It knows neither sources nor verdicts.
"""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

from taskyard.client.source import Job

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Crash:
    """In place of an outcome: the run ended without one, and why."""

    reason: str


Report: TypeAlias = Callable[[Job, T | Crash], None]


class Pool(Protocol[T_co]):
    size: int  # how many jobs it runs at once

    def start(self, report: Report[T_co]) -> None:
        """`report` is called once for each job, from any thread."""

    def submit(self, job: Job) -> None: ...

    def withdraw(self) -> list[Job]:
        """The jobs that nobody has begun with; they will not be run."""

    def close(self) -> None:
        """When nothing runs any more."""

    def kill(self) -> None:
        """End without waiting; nothing is reported from now on."""


class ThreadPool(Generic[T]):
    """Threads of this process. One that is killed runs on to the end of its job or the program."""

    def __init__(self, execute: Callable[[Job], T], size: int) -> None:
        self.size = size
        self._execute = execute
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._report: Report[T] = nobody
        self._killed = threading.Event()

    def start(self, report: Report[T]) -> None:
        self._report = report
        for number in range(self.size):
            # Daemons, so that a program that was told to end at once does.
            thread = threading.Thread(
                target=self._work, args=(number,), name=f"taskyard-worker-{number}", daemon=True
            )
            thread.start()
            self._threads.append(thread)

    def submit(self, job: Job) -> None:
        self._jobs.put(job)

    def withdraw(self) -> list[Job]:
        found: list[Job] = []
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                return found
            if job is not None:
                found.append(job)

    def close(self) -> None:
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def kill(self) -> None:
        self._killed.set()
        self.withdraw()
        for _ in self._threads:
            self._jobs.put(None)

    def _work(self, number: int) -> None:
        while (job := self._jobs.get()) is not None:
            outcome = self._outcome(job, number)
            if not self._killed.is_set():
                self._report(job, outcome)

    def _outcome(self, job: Job, number: int) -> T | Crash:
        try:
            return self._run(job, number)
        except BaseException:  # also SystemExit: it would end the thread and nothing else
            return Crash(traceback.format_exc())

    def _run(self, job: Job, number: int) -> T | Crash:
        return self._execute(job)


def nobody(job: Job, outcome: object) -> None:
    """To whom a pool reports before it is started."""
    raise AssertionError("the pool has not been started")
