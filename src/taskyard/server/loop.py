"""The event loop as the broker wants it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

from taskyard.broker.seams import Cancellable, Clock


class LoopScheduler:
    """Scheduler on an asyncio loop; blocking work goes to a few threads of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        # Four cold reads, the next segment and a sync, which must not wait for any of the others.
        self._threads = ThreadPoolExecutor(6, thread_name_prefix="disk")

    def call_soon(self, call: Callable[[], None]) -> None:
        self._loop.call_soon(call)

    def call_at(self, when: int, call: Callable[[], None]) -> Cancellable:
        # The loop counts whole milliseconds, from the one that has begun: half of one is for
        # rounding up, and one for that, so that the time has come when it rings.
        delay = max(0, when - self._clock.now()) / 1_000_000
        return self._loop.call_later(delay + 0.0015 if delay else 0, call)

    def run_blocking(
        self, work: Callable[[], None], done: Callable[[BaseException | None], None]
    ) -> None:
        self._threads.submit(work).add_done_callback(partial(self._finished, done))

    def _finished(self, done: Callable[[BaseException | None], None], future: Future[None]) -> None:
        self._loop.call_soon_threadsafe(done, future.exception())

    def close(self) -> None:
        self._threads.shutdown(wait=True)
