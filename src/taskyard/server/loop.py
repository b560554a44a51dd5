"""The broker's scheduler on an asyncio loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from taskyard.broker.seams import Cancellable, Clock
from taskyard.journal.flusher import make_flusher
from taskyard.server.fine_timer import TimerfdTimer

# Four disk reads, a read of compaction, one for listeners to events, the next segment or the
# end of old ones, two checks of passwords, a report that is read, and a sync, which must not wait
# for any of the others.
_THREAD_COUNT: Final = 11

OnDone = Callable[[BaseException | None], None]


class AsyncioScheduler:
    """Scheduler on an asyncio loop; blocking work runs in a few threads of its own.

    They exist from the beginning: starting one blocks the loop until it runs, which took 38 ms on a
    busy machine.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._precise_timer = TimerfdTimer(loop)
        self._flusher = make_flusher()
        self._on_flush: Callable[[int, int], None] | None = None
        if self._flusher is not None:
            loop.add_reader(self._flusher.fileno(), self._on_flushed)
        self._work: SimpleQueue[tuple[Callable[[], None], OnDone] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run_worker, name=f"disk-{number}", daemon=True)
            for number in range(_THREAD_COUNT)
        ]
        for thread in self._threads:
            thread.start()

    def call_soon(self, call: Callable[[], None]) -> None:
        self._loop.call_soon(call)

    def call_at(self, when: int, call: Callable[[], None]) -> Cancellable:
        # The loop counts whole milliseconds, from the one that has begun: half of one is for
        # rounding up, and one for that, so that the time has come when it fires.
        delay = max(0, when - self._clock.now()) / 1_000_000
        return self._loop.call_later(delay + 0.0015 if delay else 0, call)

    def call_after_us(self, delay: int, call: Callable[[], None]) -> Cancellable:
        self._precise_timer.set(delay, call)
        return self._precise_timer

    def run_blocking(self, work: Callable[[], None], done: OnDone) -> None:
        self._work.put((work, done))

    @property
    def has_flusher(self) -> bool:
        return self._flusher is not None

    def flush_file(self, file: int, done: Callable[[int, int], None]) -> bool:
        if self._flusher is None:
            return False
        self._on_flush = done
        self._flusher.begin_flush(file)
        return True

    def _on_flushed(self) -> None:
        assert self._flusher is not None
        failure = self._flusher.end_flush()
        done = self._on_flush
        if failure >= 0 and done is not None:
            self._on_flush = None
            done(failure, self._flusher.last_flush_us())

    def _run_worker(self) -> None:
        while True:
            item = self._work.get()
            if item is None:
                return
            work, done = item
            failure: BaseException | None = None
            try:
                work()
            except BaseException as error:  # whatever it is, the loop must be notified of it
                failure = error
            self._loop.call_soon_threadsafe(done, failure)
            del item, work, done, failure  # not to be kept until the next work

    def close(self) -> None:
        """Wait for the work that was started."""
        self._precise_timer.close()
        if self._flusher is not None:
            self._loop.remove_reader(self._flusher.fileno())
            self._flusher.close()
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()
