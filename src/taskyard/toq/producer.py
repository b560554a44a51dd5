"""Enqueues tasks, and fetches their results."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from taskyard.toq.backends import open_backend
from taskyard.toq.messages import QUEUED, Countdown, Result, Task

_MIN_POLL_S: Final = 0.005  # seconds between two requests for a result; doubled up to
_MAX_POLL_S: Final = 0.25


class ResultTimeout(TimeoutError):
    """The task has no result yet, or none any more."""


class Producer:
    """Threads may share one. It connects when it is first used, and again when it has to."""

    def __init__(
        self, url: str, *, patience: float = 10.0, countdown: Countdown | None = None
    ) -> None:
        """`url`: taskyard://host:port or redis://host:port. `patience`: seconds in which a server
        that is away is waited for. `countdown`: the pauses before retries of a task that fails
        where no toq consumer sees it (Taskyard only).
        """
        self._backend = open_backend(url, patience)
        self._countdown = countdown or Countdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def enqueue(self, queue: str, task: Task) -> str:
        """Put a task at the end of a queue; gives its id.

        On Taskyard a task whose id is a UUID can be enqueued again without harm: it is there once.
        Unavailable if the server is away; Refused if it does not want the task.
        """
        self.enqueue_many(queue, [task])
        return task.id

    def enqueue_many(self, queue: str, tasks: Sequence[Task]) -> None:
        """The same for several, in one go; after an error some of them may be there."""
        for task in tasks:
            task.state = QUEUED
        if tasks:
            self._backend.push(queue, tasks, self._countdown)

    def result(self, task_id: str, timeout: float = 10.0) -> Result:
        """The result, when it is there; ResultTimeout if it is not after so many seconds."""
        until = time.monotonic() + timeout
        pause = _MIN_POLL_S
        while True:
            data = self._backend.result(task_id)
            if data is not None:
                return Result.from_json(data)
            left = until - time.monotonic()
            if left <= 0:
                raise ResultTimeout(f"task {task_id} has no result after {timeout:g} seconds")
            time.sleep(min(pause, left))
            pause = min(pause * 2, _MAX_POLL_S)

    def close(self) -> None:
        self._backend.close()
