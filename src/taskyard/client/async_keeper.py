"""Extends the leases of an asynchronous client, in a task that exists while it holds leases."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from taskyard.client.errors import Refused
from taskyard.client.leases import LeaseTable, log_extension_error, report_lost_lease
from taskyard.client.source import Job

AsyncExtendLeases: TypeAlias = Callable[
    [Sequence[tuple[str, float]]], Awaitable[list[float | Refused]]
]


class AsyncLeaseKeeper:
    """Of one event loop."""

    def __init__(self, extend: AsyncExtendLeases, on_lost: Callable[[Job], object] | None) -> None:
        """`extend`: refs and seconds to when each lease ends by the server's clock."""
        self._extend = extend
        self._on_lost = on_lost
        self._leases = LeaseTable()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def add(self, jobs: Sequence[Job], requested_duration: float | None) -> None:
        self._leases.add(jobs, requested_duration, time.monotonic())
        self._changed.set()
        if len(self._leases) and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._run())

    def start_finish(self, job: Job) -> float:
        return self._leases.start_finish(job)

    def abort_finish(self, job: Job) -> None:
        self._leases.abort_finish(job)

    def finish(self, job: Job) -> None:
        self._leases.finish(job)
        self._changed.set()

    def set_duration(self, job: Job, seconds: float) -> None:
        self._leases.set_duration(job, seconds)

    def on_duration_set(self, job: Job, seconds: float, deadline: float) -> None:
        self._leases.on_duration_set(job, seconds, deadline, time.monotonic())
        self._changed.set()

    async def close(self) -> None:
        """The leases that are left end by their time."""
        self._leases.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while (due := self._leases.next_due()) is not None:
            now = time.monotonic()
            if due <= now:
                await self._extend_due(now)
                continue
            self._changed.clear()
            try:
                async with asyncio.timeout(due - now):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _extend_due(self, now: float) -> None:
        due = self._leases.collect_due(now)
        try:
            answers = await self._extend([(held.job.ref, seconds) for held, seconds in due])
        except Exception as error:
            log_extension_error(error)
            for held, _ in due:
                self._leases.on_unreachable(held, time.monotonic())
            return
        now = time.monotonic()
        for (held, seconds), answer in zip(due, answers, strict=True):
            job = self._leases.on_extended(held, seconds, answer, now)
            if job is not None:
                report_lost_lease(job, self._on_lost)
