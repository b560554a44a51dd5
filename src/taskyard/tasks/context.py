"""The job that a task runs for, as the task sees it."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Final, TypeAlias

from taskyard.client.source import Job

# The progress of a job: a fraction and a message.
ProgressReporter: TypeAlias = Callable[[Job, tuple[float, str]], None]


class CurrentJob:
    """What a task can know and say about the job it runs for."""

    __slots__ = ("_report_progress", "job")

    def __init__(self, job: Job, report_progress: ProgressReporter) -> None:
        self.job = job
        self._report_progress = report_progress

    @property
    def id(self) -> int:
        return self.job.id

    @property
    def uid(self) -> str:
        return self.job.uid

    @property
    def queue(self) -> str:
        return self.job.queue

    @property
    def name(self) -> str:
        """Of the task."""
        return self.job.name

    @property
    def attempt(self) -> int:
        """Which delivery of the job this is, from 1."""
        return self.job.attempt

    @property
    def fails(self) -> int:
        """How many of those before ended in a failure."""
        return self.job.fails

    def progress(self, fraction: float, message: str = "") -> None:
        """Report how much is done, from 0 to 1.

        Costs next to nothing: the last report is sent a few times a second at most. If it turns out
        that the job was cancelled, Cancelled is raised in the task soon after.
        """
        if not 0.0 <= fraction <= 1.0:
            raise ValueError("the fraction that is done must be between 0 and 1")
        self._report_progress(self.job, (fraction, message))


_current: Final[contextvars.ContextVar[CurrentJob]] = contextvars.ContextVar("taskyard-job")


def current_job() -> CurrentJob:
    """Of the task that runs here; RuntimeError outside of one.

    Threads that a task starts do not know it: hand it to them.
    """
    try:
        return _current.get()
    except LookupError:
        raise RuntimeError("no task runs here: current_job() is for the code of tasks") from None


def set_current_job(job: CurrentJob) -> contextvars.Token[CurrentJob]:
    return _current.set(job)


def reset_current_job(token: contextvars.Token[CurrentJob]) -> None:
    _current.reset(token)
