"""The jobs of one batch as a worker runtime on an executor sees them.

Each partition of a batch has some of its places, one after the other. It reads them a few at a
time, and what was settled before, by an executor that died for instance, is not there any more.
Verdicts go to the broker as those of any worker do. Leases of a batch do not end by themselves:
what is to be found out is only whether somebody has taken a job away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from taskyard.client.address import Address
from taskyard.client.connection import Connection
from taskyard.client.errors import Refused, StaleBatch
from taskyard.client.source import Again, Done, Failed, Job, Verdict
from taskyard.client.wire import Command, Reply
from taskyard.tasks.source import Queues, TaskSource, check_able, read_job
from taskyard.toq.backends.taskyard import TaskyardSource

_MOST_READ: Final = 1000  # jobs at a time
_LEASE: Final = 30.0  # seconds, of toq's look whether a lease is over


@dataclass(frozen=True, slots=True)
class Places:
    """From `start` up to, but not including, `end` of a batch."""

    consumer: str
    number: int
    start: int
    end: int

    @property
    def count(self) -> int:
        return self.end - self.start


@dataclass(slots=True)
class Tally:
    """What came of the jobs of some places."""

    done: int = 0
    failed: int = 0
    retried: int = 0
    error: str = ""  # why the run ended before its end

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.done + other.done,
            self.failed + other.failed,
            self.retried + other.retried,
            self.error or other.error,
        )

    @property
    def settled(self) -> int:
        return self.done + self.failed + self.retried


class Reader:
    """Reads the jobs of some places, each once, and looks whether they are still there."""

    def __init__(
        self, places: Places, reading: Connection, keeping: Connection, looks: int
    ) -> None:
        """`looks`: how many jobs are looked at: the oldest, which are those that run. What only
        waits here need not be read again and again.
        """
        self._places = places
        self._looks = looks
        self._reading = reading
        self._keeping = keeping
        self._at = places.start
        self._place_of: dict[str, int] = {}  # by ref

    def read(self, count: int, prepare: Callable[[list[Job]], None]) -> list[Job]:
        """The next jobs there are; none when there are no more. If `prepare` raises, they come
        again.
        """
        while self._at < self._places.end:
            count = min(count, _MOST_READ, self._places.end - self._at)
            [reply] = self._reading.pipeline([self._command(self._at, count)], repeat=True)
            found = _entries(reply)
            if not found:
                break  # the batch is over, or not as long as it was
            now = time.time()
            jobs = {
                self._at + place: read_job(one, now)
                for place, one in enumerate(found)
                if one is not None
            }
            prepare(list(jobs.values()))
            self._at += len(found)
            self._place_of |= {job.ref: place for place, job in jobs.items()}
            if jobs:
                return list(jobs.values())
        return []

    def lost(self, jobs: Sequence[Job]) -> list[Job]:
        """Those that the batch does not hold any more."""
        known = [job for job in jobs if job.ref in self._place_of][: self._looks]
        commands = [self._command(self._place_of[job.ref], 1) for job in known]
        replies = self._keeping.pipeline(commands, repeat=True)
        check_able(replies)
        return [job for job, one in zip(known, replies, strict=True) if not _holds(one, job)]

    def forget(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._place_of.pop(job.ref, None)

    def _command(self, start: int, count: int) -> Command:
        return ("BATCH.READ", self._places.consumer, self._places.number, start, count)


def _entries(reply: Reply) -> list[Any]:
    check_able([reply])
    if isinstance(reply, StaleBatch):
        return []  # the consumer was dropped: the jobs are others' by now
    if isinstance(reply, Refused):
        raise reply
    assert isinstance(reply, list)
    return reply


def _holds(reply: Reply, job: Job) -> bool:
    found = _entries(reply)
    return bool(found) and found[0] is not None and found[0][0] == job.ref.encode()


class PlacesOfTasks(TaskSource):
    """For the tasks of an app."""

    def __init__(
        self,
        address: Address,
        places: Places,
        tally: Tally,
        ended: Callable[[Job, str, bool], None],
        looks: int,
    ) -> None:
        """`ended` is told of failures, as with any worker."""
        super().__init__(address, Queues({}), _LEASE, self._count_failure)
        self._reader = Reader(places, self._taking, self._keeping, looks)
        self._tally = tally
        self._tell_ended = ended

    def take(self, count: int, wait: float) -> list[Job]:
        return self._reader.read(count, self._fetch_inputs)

    def finish(self, verdicts: Sequence[tuple[Job, Verdict]]) -> list[Job]:
        lost = super().finish(verdicts)
        self._reader.forget([job for job, _ in verdicts])
        gone = {job.ref for job in lost}
        self._tally.done += sum(
            isinstance(verdict, Done) and job.ref not in gone for job, verdict in verdicts
        )
        return lost

    def keep(self, jobs: Sequence[Job]) -> list[Job]:
        return self._reader.lost(jobs) if jobs else []

    def _count_failure(self, job: Job, error: str, final: bool) -> None:
        if final:
            self._tally.failed += 1
        else:
            self._tally.retried += 1
        self._tell_ended(job, error, final)


class PlacesOfToq(TaskyardSource):
    """For the workers of toq."""

    def __init__(
        self, url: str, places: Places, tally: Tally, result_ttl: float, looks: int
    ) -> None:
        super().__init__(url, [], _LEASE, result_ttl)
        self._reader = Reader(places, self._taking, self._telling, looks)
        self._tally = tally

    def take(self, count: int, wait: float) -> list[Job]:
        return self._reader.read(count, lambda jobs: None)

    def finish(self, verdicts: Sequence[tuple[Job, Verdict]]) -> list[Job]:
        lost = super().finish(verdicts)
        self._reader.forget([job for job, _ in verdicts])
        gone = {job.ref for job in lost}
        for job, verdict in verdicts:
            if job.ref not in gone:
                self._tally.done += isinstance(verdict, Done)
                self._tally.failed += isinstance(verdict, Failed)
                self._tally.retried += isinstance(verdict, Again)
        return lost

    def keep(self, jobs: Sequence[Job]) -> list[Job]:
        return self._reader.lost(jobs) if jobs else []
