"""Jobs that are run together: a pool that makes bundles of them, for functions of many jobs.

What came at one take is one bundle, so that nobody waits for a bundle to be full: bundles are large
when there is much to do, and small when there is little.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from taskyard.client.source import Job
from taskyard.worker.pools import Crash, Pool, Report

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Bundle(Job):
    """Jobs of one name, in the place of one. What came of it is a list, of one outcome for each."""

    jobs: Sequence[Job] = ()


class BundlingPool(Generic[T]):
    """Has another pool run bundles of the jobs with these names, and the others one by one."""

    def __init__(self, pool: Pool[Any], sizes: Mapping[str, int]) -> None:
        """`sizes`: the most jobs of a bundle, by name."""
        self.size = pool.size * max(sizes.values(), default=1)
        self._pool = pool
        self._sizes = sizes
        self._numbers = itertools.count(1)
        self._report: Report[T] | None = None

    def start(self, report: Report[T]) -> None:
        self._report = report
        self._pool.start(self._tell)

    def submit(self, *jobs: Job) -> None:
        alone: list[Job] = []
        together: dict[tuple[str, str], list[Job]] = {}
        for job in jobs:
            if job.name in self._sizes:
                together.setdefault((job.name, job.queue), []).append(job)
            else:
                alone.append(job)
        bundles = [
            self._bundle(name, queue, members[at : at + self._sizes[name]])
            for (name, queue), members in together.items()
            for at in range(0, len(members), self._sizes[name])
        ]
        self._pool.submit(*bundles, *alone)

    def _bundle(self, name: str, queue: str, jobs: list[Job]) -> Bundle:
        return Bundle(f"bundle-{next(self._numbers)}", queue, b"", name, jobs=jobs)

    def withdraw(self, most: int | None = None) -> list[Job]:
        """Whole bundles, so it may be a few more."""
        if most is None:
            return _members(self._pool.withdraw())
        found: list[Job] = []
        while len(found) < most and (last := self._pool.withdraw(1)):
            found = _members(last) + found
        return found

    def cancel(self, job: Job) -> None:
        # One of a bundle is run with the rest; that its outcome comes too late is told then.
        if job.name not in self._sizes:
            self._pool.cancel(job)

    def close(self) -> None:
        self._pool.close()

    def kill(self) -> None:
        self._pool.kill()

    def _tell(self, job: Job, outcome: Any) -> None:
        assert self._report is not None
        if not isinstance(job, Bundle):
            self._report(job, outcome)
            return
        outcomes = [outcome] * len(job.jobs) if isinstance(outcome, Crash) else outcome
        for member, its_own in zip(job.jobs, outcomes, strict=True):
            member.seconds = job.seconds
            self._report(member, its_own)


def _members(jobs: Sequence[Job]) -> list[Job]:
    found: list[Job] = []
    for job in jobs:
        found += job.jobs if isinstance(job, Bundle) else [job]
    return found
