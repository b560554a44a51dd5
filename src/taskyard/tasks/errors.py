"""What can be wrong about a task, and what a task can say by raising."""

from __future__ import annotations

from datetime import timedelta


class TaskError(Exception):
    """Base of errors that the pusher of a task may get."""


class TaskFailed(TaskError):
    """The task has failed for good. `error` is all that its worker said, with the traceback."""

    def __init__(self, name: str, job: str, error: str) -> None:
        super().__init__(f"{name} (job {job}): {error.partition(chr(10))[0]}")
        self.name = name
        self.job = job
        self.error = error

    def __reduce__(self) -> tuple[type[TaskFailed], tuple[str, str, str]]:
        return TaskFailed, (self.name, self.job, self.error)


class NotDone(TaskError, TimeoutError):
    """The task has not ended yet."""


class ResultGone(TaskError, LookupError):
    """The server does not know the job, or not any more; nor its result."""


class BadArguments(TaskError, TypeError):
    """The arguments do not fit the function, so that trying again is of no use."""


class BadResult(TaskError, TypeError):
    """A task's result has no JSON, or does not fit its annotation."""


class GiveUp(Exception):
    """Raise it in a task that is not to be tried again, whatever its `retry` says."""


class TryAgain(Exception):
    """Raise it in a task that is to be tried again after so many seconds.

    It counts as a failure: a task without retries has failed for good.
    """

    def __init__(
        self, reason: str = "to be tried again", *, delay: timedelta | float | None = None
    ) -> None:
        super().__init__(reason)
        self.delay = delay.total_seconds() if isinstance(delay, timedelta) else delay
