"""Jobs that are run together: a pool that makes groups of them, for functions of many jobs.

The jobs of one fetch are one group, so that no job waits for a group to be full: groups are large
when there is much to do, and small when there is little.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from taskyard.client.source import Job
from taskyard.worker.pools import Pool, Report, RunFailure

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class JobGroup(Job):
    """Jobs of one name, run as one. Their outcome is a list, of one outcome for each."""

    jobs: Sequence[Job] = ()


class GroupingPool(Generic[T]):
    """Has another pool run groups of the jobs with these names, and the others one by one."""

    def __init__(self, pool: Pool[Any], sizes: Mapping[str, int]) -> None:
        """`sizes`: the most jobs of a group, by name."""
        self.size = pool.size * max(sizes.values(), default=1)
        self._pool = pool
        self._sizes = sizes
        self._group_numbers = itertools.count(1)
        self._report: Report[T] | None = None

    def start(self, report: Report[T]) -> None:
        self._report = report
        self._pool.start(self._report_members)

    def submit(self, *jobs: Job) -> None:
        alone: list[Job] = []
        together: dict[tuple[str, str], list[Job]] = {}
        for job in jobs:
            if job.name in self._sizes:
                together.setdefault((job.name, job.queue), []).append(job)
            else:
                alone.append(job)
        bundles = [
            self._make_group(name, queue, members[at : at + self._sizes[name]])
            for (name, queue), members in together.items()
            for at in range(0, len(members), self._sizes[name])
        ]
        self._pool.submit(*bundles, *alone)

    def _make_group(self, name: str, queue: str, jobs: list[Job]) -> JobGroup:
        return JobGroup(f"bundle-{next(self._group_numbers)}", queue, b"", name, jobs=jobs)

    def withdraw(self, most: int | None = None) -> list[Job]:
        """Withdraw whole groups, so it may be a few more."""
        if most is None:
            return _flatten_groups(self._pool.withdraw())
        found: list[Job] = []
        while len(found) < most and (last := self._pool.withdraw(1)):
            found = _flatten_groups(last) + found
        return found

    def cancel(self, job: Job) -> None:
        # One of a group is run with the others; that its outcome is too late is reported then.
        if job.name not in self._sizes:
            self._pool.cancel(job)

    def close(self) -> None:
        self._pool.close()

    def kill(self) -> None:
        self._pool.kill()

    def _report_members(self, job: Job, outcome: Any) -> None:
        assert self._report is not None
        if not isinstance(job, JobGroup):
            self._report(job, outcome)
            return
        outcomes = [outcome] * len(job.jobs) if isinstance(outcome, RunFailure) else outcome
        for member, its_own in zip(job.jobs, outcomes, strict=True):
            member.seconds = job.seconds
            self._report(member, its_own)


def _flatten_groups(jobs: Sequence[Job]) -> list[Job]:
    found: list[Job] = []
    for job in jobs:
        found += job.jobs if isinstance(job, JobGroup) else [job]
    return found
