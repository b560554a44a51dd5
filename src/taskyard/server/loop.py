"""The event loop as the broker wants it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from taskyard.broker.seams import Cancellable, Clock
from taskyard.journal.flusher import make_flusher
from taskyard.server.fine_timer import FineTimer

# Four cold reads, a read of compaction, one for those who listen to events, the next segment or the
# end of old ones, two checks of passwords, a report that is read, and a sync, which must not wait
# for any of the others.
_THREADS: Final = 11

Done = Callable[[BaseException | None], None]


class LoopScheduler:
    """Scheduler on an asyncio loop; blocking work goes to a few threads of its own.

    They are there from the beginning: to start one holds up the loop until it runs, which took
    38 ms on a busy machine.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._fine_timer = FineTimer(loop)
        self._flusher = make_flusher()
        self._on_flush: Callable[[int, int], None] | None = None
        if self._flusher is not None:
            loop.add_reader(self._flusher.fileno(), self._flushed)
        self._work: SimpleQueue[tuple[Callable[[], None], Done] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._serve, name=f"disk-{number}", daemon=True)
            for number in range(_THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def call_soon(self, call: Callable[[], None]) -> None:
        self._loop.call_soon(call)

    def call_at(self, when: int, call: Callable[[], None]) -> Cancellable:
        # The loop counts whole milliseconds, from the one that has begun: half of one is for
        # rounding up, and one for that, so that the time has come when it rings.
        delay = max(0, when - self._clock.now()) / 1_000_000
        return self._loop.call_later(delay + 0.0015 if delay else 0, call)

    def call_within(self, delay: int, call: Callable[[], None]) -> Cancellable:
        self._fine_timer.set(delay, call)
        return self._fine_timer

    def run_blocking(self, work: Callable[[], None], done: Done) -> None:
        self._work.put((work, done))

    @property
    def has_flusher(self) -> bool:
        return self._flusher is not None

    def flush(self, file: int, done: Callable[[int, int], None]) -> bool:
        if self._flusher is None:
            return False
        self._on_flush = done
        self._flusher.begin(file)
        return True

    def _flushed(self) -> None:
        assert self._flusher is not None
        failure = self._flusher.end()
        done = self._on_flush
        if failure >= 0 and done is not None:
            self._on_flush = None
            done(failure, self._flusher.took())

    def _serve(self) -> None:
        while True:
            item = self._work.get()
            if item is None:
                return
            work, done = item
            failure: BaseException | None = None
            try:
                work()
            except BaseException as error:  # whatever it is, the loop must hear of it
                failure = error
            self._loop.call_soon_threadsafe(done, failure)
            del item, work, done, failure  # not to be kept until the next work comes

    def close(self) -> None:
        """Wait for what was asked for."""
        self._fine_timer.close()
        if self._flusher is not None:
            self._loop.remove_reader(self._flusher.fileno())
            self._flusher.close()
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()
