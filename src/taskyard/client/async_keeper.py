"""Extends the leases of an asynchronous client, in a task that there is while something is held."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from taskyard.client.errors import Refused
from taskyard.client.keeper import report_lost, report_unextended
from taskyard.client.leases import Book
from taskyard.client.source import Job

Extend: TypeAlias = Callable[[Sequence[tuple[str, float]]], Awaitable[list[float | Refused]]]


class AsyncKeeper:
    """Of one event loop."""

    def __init__(self, extend: Extend, on_lost: Callable[[Job], object] | None) -> None:
        """`extend`: refs and seconds to when each lease ends by the server's clock."""
        self._extend = extend
        self._on_lost = on_lost
        self._book = Book()
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def add(self, jobs: Sequence[Job], wanted: float | None) -> None:
        self._book.add(jobs, wanted, time.monotonic())
        self._changed.set()
        if len(self._book) and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._run())

    def begin_end(self, job: Job) -> float:
        return self._book.begin_end(job)

    def give_up_end(self, job: Job) -> None:
        self._book.give_up_end(job)

    def end(self, job: Job) -> None:
        self._book.end(job)
        self._changed.set()

    def choose_span(self, job: Job, seconds: float) -> None:
        self._book.choose_span(job, seconds)

    def chosen(self, job: Job, seconds: float, deadline: float) -> None:
        self._book.chosen(job, seconds, deadline, time.monotonic())
        self._changed.set()

    async def close(self) -> None:
        """The leases that are left end by their time."""
        self._book.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while (due := self._book.next_due()) is not None:
            now = time.monotonic()
            if due <= now:
                await self._keep(now)
                continue
            self._changed.clear()
            try:
                async with asyncio.timeout(due - now):
                    await self._changed.wait()
            except TimeoutError:
                pass

    async def _keep(self, now: float) -> None:
        due = self._book.due(now)
        try:
            answers = await self._extend([(held.job.ref, seconds) for held, seconds in due])
        except Exception as error:
            report_unextended(error)
            for held, _ in due:
                self._book.unreached(held, time.monotonic())
            return
        now = time.monotonic()
        for (held, seconds), answer in zip(due, answers, strict=True):
            job = self._book.extended(held, seconds, answer, now)
            if job is not None:
                report_lost(job, self._on_lost)
