"""What surrounds the broker in its process: the scheduler on an asyncio loop, the garbage
collector, malloc, and unexpected errors.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import sys
import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any, Final

from taskyard.broker.interfaces import Cancellable, Clock, is_fatal
from taskyard.journal.flush import make_flusher
from taskyard.server.logs import log

# Four disk reads, a read of compaction, one for listeners to events, the next segment or the
# end of old ones, two checks of passwords, a report that is read, and a sync, which must not wait
# for any of the others.
_THREAD_COUNT: Final = 11

_CLOCK_MONOTONIC: Final = 1
_SECOND_US: Final = 1_000_000
# Seconds by which a timer of the loop may be early: see AsyncioScheduler.
_ROUNDING_SECONDS: Final = 0.0015

# A collection for each 2,000 new containers: 4 ms if all of them are lists of jobs.
_THRESHOLDS: Final = (2_000, 20, 50)
_MANY_JOBS: Final = 100_000  # jobs: their lists are about as many as one collection visits
_FEW_JOBS: Final = _MANY_JOBS // 2

# mallopt's names for them, and bytes.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 16 * 1_048_576
_LARGE_BYTES: Final = 4 * 1_048_576

_EXIT_CODE: Final = 70  # EX_SOFTWARE: a supervisor may start it again

OnDone = Callable[[BaseException | None], None]


# The scheduler


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


class TimerfdTimer:
    """A timer that fires within some tens of microseconds: the loop counts milliseconds.

    It is one of the kernel's (timerfd), which Python itself offers from 3.13 on. Where there is
    none, the loop's own timer is used. One call at a time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._call: Callable[[], None] | None = None
        self._loop_timer: asyncio.TimerHandle | None = None
        self._descriptor = -1
        self._library: ctypes.CDLL | None = None
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            self._descriptor = library.timerfd_create(
                _CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC
            )
            self._library = library
        if self._descriptor >= 0:
            loop.add_reader(self._descriptor, self._on_expiry)

    def set(self, microseconds: int, call: Callable[[], None]) -> None:
        """Instead of what was set before."""
        self._call = call
        if self._descriptor >= 0:
            self._arm(max(1, microseconds))
        else:
            self._stop_loop_timer()
            self._loop_timer = self._loop.call_later(
                microseconds / _SECOND_US + _ROUNDING_SECONDS, self._on_expiry
            )

    def cancel(self) -> None:
        self._call = None
        if self._descriptor >= 0:
            self._arm(0)
        else:
            self._stop_loop_timer()

    def close(self) -> None:
        self.cancel()
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _arm(self, microseconds: int) -> None:
        assert self._library is not None
        seconds, rest = divmod(microseconds, _SECOND_US)
        times = _TimerSpec(0, 0, seconds, rest * 1000)
        self._library.timerfd_settime(self._descriptor, 0, ctypes.byref(times), None)

    def _stop_loop_timer(self) -> None:
        if self._loop_timer is not None:
            self._loop_timer.cancel()
            self._loop_timer = None

    def _on_expiry(self) -> None:
        if self._descriptor >= 0:
            try:
                os.read(self._descriptor, 8)
            except BlockingIOError:  # set anew, or cancelled, in the round in which it has rung
                return
        call = self._call
        self._call = None
        if call is not None:
            call()


class _TimerSpec(ctypes.Structure):
    """`struct itimerspec`: an interval, which is not used, and the time until it fires."""

    _fields_ = (
        ("interval_seconds", ctypes.c_long),
        ("interval_nanoseconds", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("nanoseconds", ctypes.c_long),
    )


# The garbage collector


class GcTuner:
    """Tunes the garbage collector for deep queues: it does not walk over the jobs.

    Jobs themselves are not tracked, but the lists that contain them are, and a collection visits
    each entry: a collection of the 50,000 lists that 3,000,000 pushes make stops the loop for 80
    ms. Nothing in the engine's state is ever in a cycle. So while there are many jobs, what has
    survived a collection is not visited again; the price is that a cycle which has survived one is
    only found when there are few jobs again.

    When jobs are pushed and finished at the same rate, Python itself sees no reason to collect: it
    counts how many more lists were made than were freed. It would collect after minutes, with all
    lists made by then.
    """

    def __init__(self, job_count: Callable[[], int]) -> None:
        self._job_count = job_count  # how many there are
        self._survivors_frozen = False  # what has survived is not visited

    def start(self) -> None:
        gc.set_threshold(*_THRESHOLDS)
        gc.callbacks.append(self._on_collection)

    def stop(self) -> None:
        if self._on_collection in gc.callbacks:
            gc.callbacks.remove(self._on_collection)

    def on_growth(self) -> None:
        """Collect the youngest generation after many jobs were added."""
        if self._job_count() >= _MANY_JOBS:
            gc.collect(0)

    def _on_collection(self, phase: str, _: Mapping[str, int]) -> None:
        if phase != "stop":
            return
        jobs = self._job_count()
        if jobs >= _MANY_JOBS:
            gc.freeze()
            self._survivors_frozen = True
        elif self._survivors_frozen and jobs < _FEW_JOBS:
            gc.unfreeze()
            self._survivors_frozen = False


# The heap


def tune_malloc() -> None:
    """Tell the C library's malloc to keep freed memory for a while, where it has such settings.

    By default malloc gets a buffer of some 100 kB from the system as a mapping of its own, and
    returns space at the end of the heap once there is twice as much. A loaded server then gets the
    frames of its journal and long replies in fresh pages, each of them a page fault: on a virtual
    machine whose host has reclaimed those pages, they cost more than what is done with the buffer.
    """
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)


# Unexpected errors


def install_crash_handler(loop: asyncio.AbstractEventLoop) -> None:
    """Have unexpected errors logged, or end the process."""
    loop.set_exception_handler(_handle_error)


def _handle_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    error = context.get("exception")
    if isinstance(error, BaseException) and is_fatal(error):
        _exit_at_once(error)
    loop.default_exception_handler(context)


def _exit_at_once(error: BaseException) -> None:
    """Exit at once, as if killed: anything still done would build on a half-made change."""
    try:
        with contextlib.suppress(Exception):  # there may be no memory for it
            text = "exiting at once: a change of the state was left incomplete: %r"
            log.critical(text, error, exc_info=error)
            sys.stderr.flush()
    finally:
        os._exit(_EXIT_CODE)
