"""The task broker: a client of the server for pushing tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any, Final

from taskyard.client.commands import NewJob
from taskyard.client.errors import Denied, JobNotFound, Problem
from taskyard.client.sync import Client
from taskyard.client.views import JobInfo, Outcome, Pushed

_CONFLICT: Final = 409  # the job is in no state to be cancelled
_PER_JOB_FIELDS: Final = ("queue", "payload", "uid")  # of each job; the others may be shared
_SHARED_FIELDS: Final = tuple(one.name for one in fields(NewJob) if one.name not in _PER_JOB_FIELDS)


class TaskClient:
    """By a client, which reconnects, and pushes nothing twice."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def push(self, job: NewJob) -> Pushed:
        options: dict[str, Any] = {name: getattr(job, name) for name in _SHARED_FIELDS}
        return self.client.push(job.queue, job.payload, uid=job.uid, **options)

    def push_many(self, jobs: Sequence[NewJob]) -> list[Pushed]:
        return [self.push(job) for job in jobs]

    def push_payloads(self, job: NewJob, payloads: Iterable[bytes]) -> list[Pushed]:
        options: dict[str, Any] = {name: getattr(job, name) for name in _SHARED_FIELDS}
        return self.client.push_many(job.queue, payloads, **options)

    def push_all(self, jobs: Sequence[NewJob]) -> list[Pushed]:
        return self.client.push_all(jobs)

    def result(self, job: str, wait: float) -> Outcome | None:
        return self.client.result(job, wait)

    def cancel(self, job: str) -> bool:
        if self._has_ended(job):
            return False  # else its result would be deleted, or what is left of its failure
        try:
            self.client.cancel(job)
        except JobNotFound:
            return False
        except Problem as error:
            if error.status != _CONFLICT:
                raise  # it may not be cancelled by this user, for instance
            return False
        return True

    def _has_ended(self, job: str) -> bool:
        try:
            return self.client.result(job) is not None
        except (JobNotFound, Denied):  # a client that may cancel it need not be one that may see it
            return False

    def inspect(self, job: str) -> JobInfo:
        return self.client.inspect(job)
