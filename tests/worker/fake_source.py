"""A source in memory for the worker runtime, which can be away, and loses leases when told."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Sequence

from taskyard.client.errors import Unavailable
from taskyard.client.source import Job, Verdict


class FakeSource:
    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._ready: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self.taken: list[Job] = []
        self.asked_for: list[int] = []
        self.verdicts: list[tuple[Job, Verdict]] = []
        self.kept: list[Job] = []
        self.keeps = 0
        self.lost: list[Job] = []
        self.away = threading.Event()
        self.failures = 0  # calls that were made while it was away
        self.error: Exception | None = None
        self.finish_error: Exception | None = None
        self.closed = threading.Event()

    def push(self, *payloads: bytes, lease: float = 0.0) -> list[Job]:
        jobs = [
            Job(ref=str(next(self._numbers)), queue="q", payload=payload, lease=lease)
            for payload in payloads
        ]
        for job in jobs:
            self._ready.put(job)
        return jobs

    def fetch_jobs(self, count: int, wait: float) -> list[Job]:
        self._check()
        if self.error is not None:
            raise self.error
        self.asked_for.append(count)
        found: list[Job] = []
        try:
            found.append(self._ready.get(timeout=wait))
            while len(found) < count:
                found.append(self._ready.get_nowait())
        except queue.Empty:
            pass
        self.taken += found
        return found

    def finish_jobs(self, verdicts: Sequence[tuple[Job, Verdict]]) -> list[Job]:
        self._check()
        if self.finish_error is not None:
            error, self.finish_error = self.finish_error, None
            raise error
        self.verdicts += verdicts
        return []

    def extend_leases(self, jobs: Sequence[Job]) -> list[Job]:
        self._check()
        self.keeps += 1
        self.kept += jobs
        return [job for job in jobs if job in self.lost]

    def close(self) -> None:
        self.closed.set()

    def _check(self) -> None:
        if self.away.is_set():
            self.failures += 1
            raise Unavailable("it is away")
