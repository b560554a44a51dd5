"""A pool of coroutines."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from taskyard.client.pools import Crash, Report, nobody
from taskyard.client.source import Job

T = TypeVar("T")


class AsyncPool(Generic[T]):
    """One thread with an event loop, in which so many coroutines run at once."""

    def __init__(self, execute: Callable[[Job], Awaitable[T]], size: int) -> None:
        self.size = size
        self._execute = execute
        self._waiting: deque[Job] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._report: Report[T] = nobody
        self._thread = threading.Thread(target=self._turn, name="taskyard-loop", daemon=True)
        self._killed = threading.Event()

    def start(self, report: Report[T]) -> None:
        self._report = report
        self._loop = asyncio.new_event_loop()
        self._thread.start()

    def submit(self, job: Job) -> None:
        self._waiting.append(job)
        self._loop.call_soon_threadsafe(self._fill)

    def withdraw(self) -> list[Job]:
        found: list[Job] = []
        while True:
            try:
                found.append(self._waiting.popleft())
            except IndexError:
                return found

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def kill(self) -> None:
        self._killed.set()
        self._waiting.clear()
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _turn(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            for task in self._running:
                task.cancel()
            if self._running:
                self._loop.run_until_complete(asyncio.wait(self._running))
        finally:
            self._loop.close()

    def _fill(self) -> None:
        while len(self._running) < self.size:
            try:
                job = self._waiting.popleft()
            except IndexError:
                return
            task = self._loop.create_task(self._run(job))
            self._running.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not self._killed.is_set():
            self._fill()

    async def _run(self, job: Job) -> None:
        outcome: T | Crash
        try:
            outcome = await self._execute(job)
        except (KeyboardInterrupt, SystemExit, asyncio.CancelledError, Exception):
            # A loop that is left to these would end, and everybody's jobs with it.
            outcome = Crash(traceback.format_exc())
        if not self._killed.is_set():
            self._report(job, outcome)
