"""Brings to disk what was written, on the event loop or in a thread.

A SyncPoint does it, a Flusher is the thread that does it best, and choose_sync_mode measures where
it should run.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import time
from queue import SimpleQueue
from statistics import median
from typing import Final, Protocol

from mypy_extensions import i64, mypyc_attr

from taskyard.journal.disk import Disk
from taskyard.journal.errors import JournalFailed
from taskyard.journal.format import Segment

# Syncs


class SyncPoint:
    """What must be synced for all that is written now to be durable."""

    __slots__ = ("_directory", "_write_failure", "done", "position", "segments", "seq")

    def __init__(
        self,
        segments: list[Segment],
        directory: Disk | None,
        position: i64,
        seq: i64,
        health: WriteFailure,
    ) -> None:
        self.segments = segments
        self.position = position
        self.seq = seq
        self.done = False
        self._directory = directory
        self._write_failure = health

    def only_descriptor(self) -> int:
        """The one file that has to be flushed, if that is all and it has a descriptor; else -1."""
        if self._directory is not None or len(self.segments) != 1 or self._write_failure.reason:
            return -1
        return self.segments[0].file.fileno()

    def on_flushed(self, failure: int) -> None:
        """Another thread has flushed that file; `failure` is the errno of that, or 0."""
        if failure:
            error = OSError(failure, os.strerror(failure))
            self._write_failure.reason = f"a sync has failed: {error}"
            raise error
        self.done = True

    def run(self) -> None:
        """Do it. May run in another thread. What has failed is never tried again."""
        self._write_failure.raise_if_failed()
        try:
            for segment in self.segments:
                segment.file.sync()
            if self._directory is not None:
                self._directory.sync()
        except OSError as error:
            self._write_failure.reason = f"a sync has failed: {error}"
            raise
        self.done = True


@mypyc_attr(acyclic=True)
class WriteFailure:
    """Why nothing can be written any more; "": it can. Shared with the syncs in other threads."""

    __slots__ = ("reason",)

    def __init__(self) -> None:
        self.reason = ""

    def raise_if_failed(self) -> None:
        if self.reason:
            raise JournalFailed(errno.EIO, self.reason)


# Flush thread


class Flusher(Protocol):
    """A thread beside the event loop that flushes files without the interpreter's lock.

    It is written in C and exists if the compiled form was built; without it a thread of Python does
    the same, which has to get the lock twice for each flush.
    """

    def fileno(self) -> int:
        """Can be read when a flush is over."""

    def begin_flush(self, file: int, /) -> None:
        """Flush the file with this descriptor; one at a time."""

    def end_flush(self) -> int:
        """0 if the flush is done, else its errno; -1 if it is not over."""

    def last_flush_us(self) -> int:
        """Microseconds of the flush that was ended last."""

    def close(self) -> None:
        """Wait for the end of all."""


def make_flusher() -> Flusher | None:
    with contextlib.suppress(ImportError):
        from taskyard.journal._flusher import Flusher as Thread

        made: Flusher = Thread()
        return made
    return None


# Choice of where syncs run

_PROBE: Final = "flush.probe"
_PROBE_SIZE: Final = 64 * 1024
_PROBE_DATA: Final = bytes(512)
_FLUSHES: Final = 9
_THREAD_SWITCHES: Final = 25
_MAX_PROBE_S: Final = 0.03  # seconds after which a slow disk is known well enough
# Measured with 50 connections: at a flush of 0.2 ms (9 hand-overs) inline does 1.15 times as many
# jobs as a thread, at 0.5 ms (23) 0.94 times, at 1.7 ms (77) 0.72 times.
_BREAK_EVEN_SWITCHES: Final = 16
# Microseconds. A machine that is busy at the start hands over slowly, and not for that alone
# should such a flush hold up the loop.
_MAX_INLINE_FLUSH_US: Final = 1_000


@mypyc_attr(acyclic=True)
class SyncChoice:
    """The choice with the figures it was made by, in microseconds."""

    __slots__ = ("flush_us", "mode", "thread_switch_us")

    def __init__(self, mode: str, flush_us: int, thread_switch_us: int) -> None:
        self.mode = mode  # "inline" or "thread"
        self.flush_us = flush_us
        self.thread_switch_us = thread_switch_us


def choose_sync_mode(path: str | os.PathLike[str]) -> SyncChoice:
    """Choose where the sync should run, by what this disk takes for one: measure the disk of the
    directory at `path`, which takes some milliseconds.

    On the loop nothing else happens while the disk is flushed; in a thread every sync costs two
    switches between threads, and the loop competes with it for the interpreter, unless that thread
    is a Flusher.
    """
    flush = measure_flush_us(os.fspath(path))
    return choose_mode(flush, measure_thread_switch_us())


def choose_mode(flush_us: int, thread_switch_us: int) -> SyncChoice:
    is_quick = flush_us <= min(_BREAK_EVEN_SWITCHES * thread_switch_us, _MAX_INLINE_FLUSH_US)
    return SyncChoice("inline" if is_quick else "thread", flush_us, thread_switch_us)


def measure_flush_us(directory: str) -> int:
    """Median microseconds of a small overwrite and its fdatasync in a file with reserved space."""
    path = os.path.join(directory, _PROBE)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with contextlib.suppress(OSError):  # not every file system can
            os.posix_fallocate(fd, 0, _PROBE_SIZE)
        _flush(fd, 0)  # the first one also brings the file itself to disk
        return _median_flush(fd)
    finally:
        os.close(fd)
        os.unlink(path)


def _median_flush(fd: int) -> int:
    taken: list[float] = []
    while len(taken) < _FLUSHES and sum(taken) < _MAX_PROBE_S:
        taken.append(_flush(fd, len(taken) + 1))
    return _microseconds(taken)


def _flush(fd: int, number: int) -> float:
    started = time.perf_counter()
    os.pwrite(fd, _PROBE_DATA, number * len(_PROBE_DATA))
    os.fdatasync(fd)
    return time.perf_counter() - started


def measure_thread_switch_us() -> int:
    """Median microseconds until another thread has been given something and has answered."""
    echo = _Echo()
    thread = threading.Thread(target=echo.run, name="hand-over", daemon=True)
    thread.start()
    taken: list[float] = []
    for _ in range(_THREAD_SWITCHES):
        started = time.perf_counter()
        echo.asked.put(True)
        echo.answered.get()
        taken.append(time.perf_counter() - started)
    echo.asked.put(False)
    thread.join()
    return _microseconds(taken)


class _Echo:
    """A thread that gives back what it gets."""

    def __init__(self) -> None:
        self.asked: SimpleQueue[bool] = SimpleQueue()
        self.answered: SimpleQueue[bool] = SimpleQueue()

    def run(self) -> None:
        while self.asked.get():
            self.answered.put(True)


def _microseconds(seconds: list[float]) -> int:
    return max(1, round(median(seconds) * 1_000_000))
