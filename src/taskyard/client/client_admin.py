"""What a blocking client can see and do beside pushing and taking: the JSON API, typed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TypeVar, Unpack

from taskyard.client.api import ApiCalls, Pages
from taskyard.client.commands import Call
from taskyard.client.pushing import JobRef
from taskyard.client.scheduling import ScheduleOptions
from taskyard.client.views import (
    ConsumerInfo,
    DeadGroups,
    DeadLetter,
    HeldJob,
    JobInfo,
    Pushed,
    QueueInfo,
    ReaderInfo,
    Replayed,
    ScheduleInfo,
    ServerInfo,
    SettingsOptions,
)

T = TypeVar("T")


class Administration(ABC):
    """Part of Client. The lists are read as one walks through them."""

    def __init__(self, api: ApiCalls) -> None:
        self._api = api

    @abstractmethod
    def _run_call(self, call: Call[T]) -> T: ...

    @abstractmethod
    def _iterate_pages(self, pages: Pages[T]) -> Iterator[T]: ...

    # Jobs

    def inspect(self, job: JobRef) -> JobInfo:
        """All that is known about a job, with payload, result and last error; JobNotFound."""
        return self._run_call(self._api.inspect(job))

    def jobs(self, queue: str, state: str = "ready", limit: int | None = None) -> Iterator[JobInfo]:
        """The jobs of a queue that are in one state: blocked, delayed, ready, limited, leased,
        succeeded or failed.
        """
        return self._iterate_pages(self._api.jobs(queue, state, limit))

    def finished(self, limit: int | None = None) -> Iterator[JobInfo]:
        """Jobs that ended a short while ago, the last one first."""
        return self._iterate_pages(self._api.finished(limit))

    def leases(self, queue: str | None = None, limit: int | None = None) -> Iterator[HeldJob]:
        """The leases of a queue, or of all."""
        return self._iterate_pages(self._api.leases(queue, limit))

    def cancel(self, job: JobRef) -> None:
        """Remove a job, in whatever state it is, and end its lease. Jobs that wait for it fail."""
        self._run_call(self._api.cancel(job))

    def retry(self, job: JobRef) -> JobInfo:
        """Make a delayed job ready now, or replay a dead letter."""
        return self._run_call(self._api.retry(job))

    def move(self, job: JobRef, queue: str, *, front: bool = False) -> JobInfo:
        """Put a job into another queue, at its end or its front, where it is ready."""
        return self._run_call(self._api.move(job, queue, front))

    def set_priority(self, job: JobRef, priority: int) -> JobInfo:
        """Put a ready job behind those that have this priority already."""
        return self._run_call(self._api.set_priority(job, priority))

    # Queues

    def queues(self) -> list[QueueInfo]:
        """All queues that one may see, by name."""
        return list(self._iterate_pages(self._api.queues()))

    def queue(self, name: str) -> QueueInfo:
        """A queue: its jobs by state, settings, counters; QueueNotFound."""
        return self._run_call(self._api.queue(name))

    def configure(
        self, name: str, *, replace: bool = False, **settings: Unpack[SettingsOptions]
    ) -> QueueInfo:
        """Change settings of a queue, such as retries=3; see QueueSettings.

        With `replace` the queue is made if there is none, and settings that are not named get
        their defaults.
        """
        return self._run_call(self._api.configure(name, settings, replace))

    def pause(self, name: str) -> QueueInfo:
        """Deliver no more jobs of a queue."""
        return self._run_call(self._api.pause(name))

    def resume(self, name: str) -> QueueInfo:
        """Hand them out again."""
        return self._run_call(self._api.resume(name))

    def purge(self, name: str, *states: str) -> int:
        """Remove the jobs of a queue that are in these states, else those that wait (blocked,
        delayed, ready, limited); says how many.
        """
        wanted = states or ("blocked", "delayed", "ready", "limited")
        return self._run_call(self._api.purge(name, wanted))["removed"]

    def delete(self, name: str, *, purge: bool = False) -> int:
        """Delete a queue, with `purge` also if it has jobs; returns how many those were."""
        return self._run_call(self._api.delete(name, purge))["removed"]

    # Dead letters

    def dead(
        self, queue: str, reason: str | None = None, limit: int | None = None
    ) -> Iterator[DeadLetter]:
        """The jobs of a queue that have failed for good, the oldest first."""
        return self._iterate_pages(self._api.dead(queue, reason, limit))

    def dead_groups(self, queue: str) -> DeadGroups:
        """The same by reason: how many, the last error, some ids."""
        return self._run_call(self._api.dead_groups(queue))

    def replay(
        self, queue: str, ids: Iterable[int] | None = None, reason: str | None = None
    ) -> Replayed:
        """Replay dead letters: those with these ids, else all, or all of a reason."""
        return self._run_call(self._api.replay(queue, ids, reason))

    def purge_dead(
        self, queue: str, ids: Iterable[int] | None = None, reason: str | None = None
    ) -> int:
        """Remove dead letters: those with these ids, else all, or all of a reason; says how
        many. Ids that are not among them are passed over.
        """
        return self._run_call(self._api.purge_dead(queue, ids, reason)).removed

    # Schedules

    def schedules(self) -> list[ScheduleInfo]:
        """All schedules that one may see, by name."""
        return list(self._iterate_pages(self._api.schedules()))

    def schedule(self, name: str) -> ScheduleInfo:
        """One of them."""
        return self._run_call(self._api.schedule(name))

    def set_schedule(
        self, name: str, queue: str, **options: Unpack[ScheduleOptions]
    ) -> ScheduleInfo:
        """Have a job pushed to a queue again and again; replaces a schedule of the same name."""
        return self._run_call(self._api.set_schedule(name, queue, options))

    def pause_schedule(self, name: str) -> ScheduleInfo:
        """Let it push nothing for now."""
        return self._run_call(self._api.pause_schedule(name, True))

    def resume_schedule(self, name: str) -> ScheduleInfo:
        """Let it push again."""
        return self._run_call(self._api.pause_schedule(name, False))

    def run_schedule(self, name: str) -> Pushed:
        """Push one job of it now."""
        return self._run_call(self._api.run_schedule(name))

    def delete_schedule(self, name: str) -> None:
        """Forget it; jobs that it has pushed stay."""
        self._run_call(self._api.delete_schedule(name))

    # The pipeline

    def consumers(self) -> list[ConsumerInfo]:
        """All consumers of batches that one may see, by name."""
        return list(self._iterate_pages(self._api.consumers()))

    def readers(self) -> list[ReaderInfo]:
        """All readers of the journal, by name."""
        return list(self._iterate_pages(self._api.readers()))

    # The server

    def server(self) -> ServerInfo:
        """Version, uptime, durability, journal and so on."""
        return self._run_call(self._api.server())
